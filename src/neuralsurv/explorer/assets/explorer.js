// The page: holds who is shown, asks the service, and keeps pictures, tables and words together.
import { at, make, number } from "./chart.js";
import { buildForm } from "./form.js";
import { intervalChart, lineChart } from "./live_chart.js";
import { aboutModel, numbersTable, pick, sentence, valuesTable } from "./results.js";
import { describe, newest, predict } from "./service.js";
import { filledSentence, outsideSentence, percent, time, value } from "./words.js";

const STEPS = 100, MOST_PINS = 5, SPEAK_AFTER = 800, VARIED_STEPS = 24;
const QUANTITIES = ["survival", "hazard", "quantile", "rmst", "event_time"];
const get = (id) => document.getElementById(id);

let model = null, form = null, times = [];
// `values` are those of the form; an answer has with it the values that it is about, which may be older.
let current = { name: "this person", colour: 0, values: null, usable: true, answer: null };
let pins = [], made = 0, speaking = null;

const charts = {
  survival: lineChart(get("survival"), { yTitle: "survival", text: percent, axisText: percent0, moved: readAt }),
  hazard: lineChart(get("hazard"), { height: 240, yTitle: "hazard", text: number, moved: readAt }),
  vary: lineChart(get("vary"), { height: 260, yTitle: "survival", text: percent, axisText: percent0 }),
  when: intervalChart(get("when")),
};

function percent0(share) { return `${Math.round(100 * share)} %`; }

// One place in time is read in both pictures, and in the table.
function readAt(place) {
  charts.survival.show(place);
  charts.hazard.show(place);
  showNumbers();
  askVaried();
}

const level = () => Number(get("level").value);
const until = () => Number(get("until").value);
const last = () => model.last_training_time;
const axis = () => (model.roles.time ? `time (${model.roles.time})` : "time");
const shownPeople = () => [current, ...pins].filter((person) => person.answer !== null);

function survivalAt(person, place) {
  const curve = person.answer.survival;
  if (place > times[times.length - 1]) return null;
  return { median: at(times, curve.median, place), lower: at(times, curve.lower, place), upper: at(times, curve.upper, place) };
}

function alarm(text) {
  get("alarm").textContent = text;
  get("alarm").hidden = text === "";
}

// Curves start at time 0, unless the hazard there is infinite or 0.
function grid() {
  const end = until();
  return Array.from({ length: STEPS + 1 }, (_, k) => (k === 0 && !model.hazard_at_zero ? end / (10 * STEPS) : end * k / STEPS));
}

// Asks about the person of the form, and about pinned people whose answer is of another model, level or end of the curves.
const ask = newest(async (_, signal) => {
  document.body.classList.add("busy");
  try {
    const asked = grid(), sort = JSON.stringify([model.fingerprint, level(), until()]);
    const people = [current, ...pins.filter((pin) => pin.answer.sort !== sort)], values = people.map((person) => person.values);
    const answer = await predict({ people: values, times: asked, quantities: QUANTITIES, shares: [0.5], level: level() }, signal);
    if (signal.aborted) return;
    if (answer.model !== model.fingerprint) return await replaced();
    times = asked;
    people.forEach((person, k) => { person.answer = { ...answer.people[k], values: values[k], sort }; });
    alarm("");
    show();
  } catch (error) {
    if (signal.aborted) return;
    alarm(error.message);
    if (error.column) form.note(error.column, error.message, true);
  } finally { document.body.classList.remove("busy"); }
});

// Survival at the time that is read, along the range of one covariate, the rest of the person staying.
const askVaried = newest(async (_, signal) => {
  const feature = model.features.find((one) => one.name === get("varied").value);
  if (!feature || current.answer === null) return;
  const values = current.answer.values;
  const range = feature.training_range ?? { low: feature.mean - 3 * feature.spread, high: feature.mean + 3 * feature.spread };
  const own = values[feature.name];
  const low = own === null ? range.low : Math.min(range.low, own), high = own === null ? range.high : Math.max(range.high, own);
  const places = Array.from({ length: VARIED_STEPS + 1 }, (_, k) => low + (high - low) * k / VARIED_STEPS);
  const place = charts.survival.place ?? until() / 2;
  try {
    const answer = await predict({ people: places.map((x) => ({ ...values, [feature.name]: x })), times: [place], quantities: ["survival"], level: level() }, signal);
    if (signal.aborted) return;
    const line = (key) => answer.people.map((person) => person.survival[key][0]);
    charts.vary.update({
      x: [low, high], y: [0, 1], xTitle: feature.name,
      series: [{ name: current.name, colour: 0, x: places, y: line("median"), low: line("lower"), high: line("upper") }],
      rules: own === null ? [] : [own],
      shades: feature.training_range ? [[low, range.low], [range.high, high]] : [],
      at: own,
      alt: `Survival at ${number(place)} as ${feature.name} goes from ${number(low)} to ${number(high)}: from ${percent(line("median")[0])} to ${percent(line("median")[VARIED_STEPS])}.`,
    });
    const outside = low < range.low || high > range.high ? " The shaded part lies outside the training range." : "";
    get("vary-note").textContent = `Survival of this person at ${number(place)}, if only ${feature.name} were another; the dashed line is where it is. An association in the model, not the effect of a treatment.${outside}`;
  } catch (error) {
    if (!signal.aborted) get("vary-note").textContent = error.message;
  }
});

function show() {
  const people = shownPeople(), end = until();
  const line = (person, what) => ({
    name: person.name, colour: person.colour, x: times, y: person.answer[what].median,
    low: person.answer[what].lower, high: person.answer[what].upper, guess: person.answer.outside_training.length > 0,
  });
  const beyond = end > last() ? { rules: [last()], shades: [[last(), end]] } : {};
  const middle = end / 2;
  // The first place to read is the median time.
  const first = charts.survival.place === null ? pick(current.answer.quantile, 0).median : null;
  charts.survival.update({
    at: first !== null && first < end ? first : null, x: [0, end], y: [0, 1], xTitle: axis(), series: people.map((person) => line(person, "survival")), ...beyond,
    alt: `Survival with ${percent(level())} bands. ${people.map((person) => `${person.name}: ${percent(survivalAt(person, middle).median)} at ${number(middle)}`).join("; ")}.`,
  });
  // A band that reaches far up would press the lines together at the bottom.
  const highest = Math.max(...people.flatMap((person) => person.answer.hazard.upper));
  const top = Math.min(3 * Math.max(...people.flatMap((person) => person.answer.hazard.median)), 1.05 * highest) || 1;
  get("hazard-note").textContent = `Events per unit of time among those who are still without one.${highest > top ? ` Bands go on up to ${number(highest)}.` : ""}`;
  charts.hazard.update({
    x: [0, end], y: [0, top], xTitle: axis(), series: people.map((person) => line(person, "hazard")), ...beyond, at: charts.survival.place,
    alt: `Hazard with ${percent(level())} bands, up to ${number(top)}.`,
  });
  const share = percent(level());
  charts.when.update({
    x: [0, last()], xTitle: axis(), last: last(),
    rows: people.map((person) => ({ ...person.answer.event_time, name: person.name, colour: person.colour, inner: pick(person.answer.quantile, 0) })),
    alt: people.map((person) => `${person.name}: ${time(person.answer.event_time.lower, last())} to ${time(person.answer.event_time.upper, last())}`).join("; "),
  });
  get("when-note").textContent = `Thin: the event falls in here with a chance of ${share}. Thick: the ${share} interval of the median time; half of people like this have the event before it. An arrow leads beyond ${number(last())}, the last time the model has seen.`;
  get("curve-title").textContent = people.length > 1 ? "Survival, compared" : "Survival";
  showOutside(end);
  showNumbers();
  valuesTable(get("values"), people, times);
  askVaried();
  clearTimeout(speaking);
  speaking = setTimeout(() => { get("spoken").textContent = sentence(current, { last: last(), place: charts.survival.place, survivalAt }); }, SPEAK_AFTER);
}

function showNumbers() {
  if (shownPeople().length === 0) return;
  get("numbers-note").textContent = numbersTable(get("numbers"), shownPeople(), { last: last(), horizon: last(), level: level(), place: charts.survival.place, survivalAt });
}

function showOutside(end) {
  const found = [];
  // Beside the fields stands only what is about the values in them.
  const about = current.usable && current.answer.values === current.values;
  if (about) for (const feature of model.features) form.note(feature.name, "");
  for (const person of shownPeople()) {
    for (const one of person.answer.outside_training) {
      // The form may be ahead of the answer, and back inside the range.
      const typed = current.values[one.column];
      if (person === current && typed !== null && typed >= one.low && typed <= one.high) continue;
      const words = outsideSentence(one, person.answer.values);
      if (person === current && about) form.note(one.column, words);
      found.push(person === current ? words : `${person.name}: ${words}`);
    }
    if (person.answer.filled_in.length) found.push(`${person === current ? "" : `${person.name}: `}${filledSentence(person.answer.filled_in)}`);
  }
  if (end > last()) found.push(`After ${number(last())}, the last time the model has seen, curves are extrapolated.`);
  const lines = found.map((text) => make("li", {}, text));
  // Only touched when it changes, so that a screen reader says it once.
  if (get("outside").textContent !== found.join("")) get("outside").replaceChildren(...(lines.length ? [make("ul", { class: "warnings" }, ...lines)] : []));
}

// After every change of the form. Reading it clears what was said about the values before.
function changed(how) {
  const person = form.read();
  current.usable = person !== null;
  clearTimeout(speaking);
  if (person === null) { ask.stop(); return; }
  current.values = person;
  alarm("");
  if (current.answer !== null) showOutside(until());
  askAgain(how);
}

function askAgain(how) {
  if (until() > 0) ask(null, how);
  else { ask.stop(); alarm("Curves need a time above 0 to go up to."); }
}

function pin() {
  if (current.answer === null || pins.length >= MOST_PINS) return;
  const free = [1, 2, 3, 4, 5].find((colour) => pins.every((one) => one.colour !== colour));
  made += 1;
  pins = [...pins, { name: `person ${String.fromCharCode(64 + (made - 1) % 26 + 1)}`, colour: free, values: current.answer.values, answer: current.answer }];
  showPins();
  show();
  get("spoken").textContent = `${pins[pins.length - 1].name} is pinned. Change the form to compare.`;
}

function showPins() {
  get("pins").replaceChildren(...pins.map((person) => {
    const box = make("input", { type: "text", maxlength: "30", "aria-label": `Name of ${person.name}` });
    box.value = person.name;
    box.addEventListener("change", () => { person.name = box.value.trim() || person.name; showPins(); show(); });
    const load = make("button", { type: "button", "aria-label": `Copy ${person.name} into the form` }, "Edit a copy");
    load.addEventListener("click", () => { form.set(person.values); changed(); });
    const drop = make("button", { type: "button", "aria-label": `Remove ${person.name}` }, "Remove");
    drop.addEventListener("click", () => {
      pins = pins.filter((one) => one !== person);
      showPins();
      show();
      // The button is gone; the focus goes to what is next to it and not to the top of the page.
      (get("pins").querySelector("button:last-child") ?? get("pin")).focus();
      get("spoken").textContent = `${person.name} is removed.`;
    });
    const words = Object.entries(person.values).map(([name, found]) => `${name} ${value(found)}`).join(", ");
    return make("li", {}, make("i", { class: `swatch dot${person.colour}` }), box, make("span", { class: "who" }, words), load, drop);
  }));
  get("pin").disabled = pins.length >= MOST_PINS;
  get("pin").textContent = pins.length >= MOST_PINS ? `${MOST_PINS} people are pinned` : "Pin this person to compare";
}

function describePage() {
  get("title").textContent = model.file;
  document.title = `${model.file} – explorer`;
  const facts = [["Rows", model.training.rows], ["Events", model.training.events], ["Last training time", number(last())], ["neuralsurv", model.version]];
  get("facts").replaceChildren(...facts.map(([name, content]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(content)))));
  aboutModel(get("about"), model);
  const numbers = model.features.filter((feature) => feature.kind === "number");
  get("varied").replaceChildren(...numbers.map((feature) => make("option", { value: feature.name }, feature.name)));
  get("vary").hidden = numbers.length === 0;
  form = buildForm(get("form"), model.features, changed);
  get("until").value = last();
  get("work").hidden = false;
}

const typical = () => Object.fromEntries(model.features.map((feature) => [feature.name, feature.typical]));

// The model file was replaced while the page was open: keep what still fits, start over otherwise.
async function replaced() {
  model = await describe();
  const before = current.values;
  const names = JSON.stringify(model.features.map((feature) => [feature.name, feature.kind, feature.levels]));
  const fits = before !== null && names === shape;
  shape = names;
  describePage();
  if (!fits) { pins = []; showPins(); }
  form.set(fits ? before : typical());
  current.values = form.read() ?? typical();
  current.usable = true;
  const words = fits ? "the person is the same" : "its covariates are others, so the person and the pins are gone";
  get("replaced").textContent = `The model file was replaced at ${new Date().toLocaleTimeString()}; this is the new model, and ${words}.`;
  setTimeout(() => ask(), 0);
}

let shape = "";

async function start() {
  try {
    model = await describe();
  } catch (error) { alarm(error.message); return; }
  shape = JSON.stringify(model.features.map((feature) => [feature.name, feature.kind, feature.levels]));
  describePage();
  form.set(typical());
  current.values = form.read();
  await ask();
}

// On a phone the curve stands below the form; a field that gets the focus is scrolled clear of it.
new ResizeObserver(() => {
  document.documentElement.style.setProperty("--curve-height", `${get("curve").offsetHeight + 8}px`);
}).observe(get("curve"));

get("typical").addEventListener("click", () => { form.set(typical()); changed(); });
get("pin").addEventListener("click", pin);
get("level").addEventListener("change", () => askAgain());
get("until").addEventListener("change", () => askAgain());
get("varied").addEventListener("change", () => askVaried());
start();
