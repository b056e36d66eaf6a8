// Tables and sentences about the people on the page.
import { make, number } from "./chart.js";
import { filledSentence, interval, percent, time, value } from "./words.js";

const cell = (text) => make("td", { class: "number" }, text);
const head = (text, scope, kind = null) => make("th", { scope, class: kind }, text);

function nameHead(person) {
  return make("th", { scope: "col", class: "number" }, make("i", { class: `swatch dot${person.colour}` }), person.name);
}

// The numbers that a chart cannot give exactly, and the covariates in which people differ.
export function numbersTable(table, people, { last, horizon, level, place, survivalAt }) {
  const rows = [];
  const add = (words, text) => rows.push(make("tr", {}, head(words, "row"), ...people.map((person) => cell(text(person)))));
  add(`survival at ${number(place)}`, (person) => {
    const found = survivalAt(person, place);
    return found === null ? "–" : `${percent(found.median)} (${percent(found.lower)} to ${percent(found.upper)})`;
  });
  add("median time", (person) => interval(pick(person.answer.quantile, 0), last));
  add(`mean time up to ${number(horizon)}`, (person) => interval(person.answer.rmst, last));
  add("own event time", (person) => `${time(person.answer.event_time.lower, last)} to ${time(person.answer.event_time.upper, last)}`);
  const names = Object.keys(people[0].answer.values);
  for (const name of names) {
    if (new Set(people.map((person) => JSON.stringify(person.answer.values[name]))).size > 1) add(name, (person) => value(person.answer.values[name]));
  }
  table.replaceChildren(
    make("thead", {}, make("tr", {}, head("", "col"), ...people.map(nameHead))),
    make("tbody", {}, ...rows),
  );
  return `Curves, medians and means with the ${percent(level)} interval of what is not known about them; “own event time” is where the person's own event falls with a chance of ${percent(level)}.`;
}

export function pick(band, place) {
  return { median: band.median[place], lower: band.lower[place], upper: band.upper[place] };
}

// Survival and hazard at a dozen times.
export function valuesTable(table, people, times) {
  const every = Math.max(1, Math.floor(times.length / 12));
  const rows = [];
  times.forEach((t, k) => {
    if (k % every !== 0 && k !== times.length - 1) return;
    const cells = [];
    for (const person of people) {
      const survival = pick(person.answer.survival, k), hazard = pick(person.answer.hazard, k);
      cells.push(cell(`${percent(survival.median)} (${percent(survival.lower)} to ${percent(survival.upper)})`));
      cells.push(cell(`${number(hazard.median)} (${number(hazard.lower)} to ${number(hazard.upper)})`));
    }
    rows.push(make("tr", {}, head(number(t), "row"), ...cells));
  });
  const second = people.flatMap(() => [head("survival", "col", "number"), head("hazard", "col", "number")]);
  table.replaceChildren(
    make("thead", {},
      make("tr", {}, head("", "col"), ...people.map((person) => { const found = nameHead(person); found.colSpan = 2; found.scope = "colgroup"; return found; })),
      make("tr", {}, head("time", "col"), ...second)),
    make("tbody", {}, ...rows),
  );
}

// What a listener hears after a change.
export function sentence(person, { last, place, survivalAt }) {
  const found = survivalAt(person, place), median = pick(person.answer.quantile, 0);
  const parts = [];
  if (found !== null) parts.push(`Survival at ${number(place)}: ${percent(found.median)}, from ${percent(found.lower)} to ${percent(found.upper)}.`);
  parts.push(`Median time ${interval(median, last)}.`);
  if (person.answer.outside_training.length) parts.push(`Outside the training range: ${person.answer.outside_training.map((one) => one.column).join(", ")}.`);
  if (person.answer.filled_in.length) parts.push(filledSentence(person.answer.filled_in));
  return parts.join(" ");
}

export function aboutModel(place, model) {
  const rows = model.summary.map((row) => make("tr", {}, make("td", {}, row.section), make("td", {}, row.name), make("td", {}, row.value)));
  const table = make("table", {}, make("thead", {}, make("tr", {}, head("part", "col"), head("what", "col"), head("value", "col"))), make("tbody", {}, ...rows));
  const warnings = model.warnings.map((text) => make("li", {}, text));
  place.replaceChildren(make("div", { class: "scroll" }, table), ...(warnings.length ? [make("ul", { class: "warnings" }, ...warnings)] : []));
}
