// The form: one field for each covariate of the model, with what was seen in training beside it.
import { make, number } from "./chart.js";

const NOT_KNOWN = "";

// A round step of about a hundredth of a range.
function stepOf(feature, low, high) {
  if (feature.whole) return 1;
  return 10 ** Math.floor(Math.log10((high - low) / 100));
}

function tidy(value) { return +value.toPrecision(12); }

function numberField(feature, id, changed) {
  const known = feature.training_range;
  const low = known ? known.low : feature.mean - 3 * feature.spread;
  const high = known ? known.high : feature.mean + 3 * feature.spread;
  const step = stepOf(feature, low, high);
  const box = make("input", { type: "number", id, step: "any", inputmode: "decimal", "aria-describedby": `${id}-hint ${id}-note` });
  const slider = make("input", {
    type: "range", "aria-label": `${feature.name}, slider`, "aria-describedby": `${id}-note`,
    min: tidy(Math.floor(low / step) * step), max: tidy(Math.ceil(high / step) * step), step: tidy(step),
  });
  const hint = make("span", { class: "hint", id: `${id}-hint` }, known
    ? `${number(low)} to ${number(high)} in training`
    : `mean ${number(feature.mean)}; this file does not store the range`);
  const unknown = make("input", { type: "checkbox", id: `${id}-unknown` });

  slider.addEventListener("input", () => {
    // The slider's ends are round numbers that may lie slightly outside the range.
    box.value = tidy(Math.min(high, Math.max(low, Number(slider.value))));
    unknown.checked = false;
    // Every place on the way is meant, so the curve follows; a number that is typed is meant only when it is whole.
    changed({ gently: true });
  });
  box.addEventListener("input", () => {
    if (box.value !== "") slider.value = box.value;
    if (box.value !== "") unknown.checked = false;
    changed();
  });
  unknown.addEventListener("change", () => {
    if (!unknown.checked && box.value === "") set(feature.typical);
    changed();
  });
  function set(value) {
    unknown.checked = value === null;
    if (value === null) return;
    box.value = value;
    slider.value = value;
  }
  function read() {
    if (unknown.checked) return { value: null };
    if (box.value === "") {
      return { problem: box.validity.badInput ? "this is not a number" : "type a number, or tick “not known”" };
    }
    return { value: Number(box.value) };
  }
  const parts = [make("div", { class: "pairing" }, slider, box)];
  parts.push(make("div", { class: "below" }, hint, make("label", { class: "tick-label" }, unknown, " not known")));
  return { parts, set, read, inputs: [box, slider] };
}

function categoryField(feature, id, changed) {
  const list = make("select", { id, "aria-describedby": `${id}-note` });
  feature.levels.forEach((level, place) => {
    list.append(make("option", { value: String(place) }, level === true ? "yes" : level === false ? "no" : level === "" ? "(empty)" : level));
  });
  list.append(make("option", { value: NOT_KNOWN }, "not known"));
  list.addEventListener("change", () => changed());
  return {
    parts: [list],
    set: (value) => { list.value = value === null ? NOT_KNOWN : String(feature.levels.indexOf(value)); },
    read: () => ({ value: list.value === NOT_KNOWN ? null : feature.levels[Number(list.value)] }),
    inputs: [list],
  };
}

// Builds the fields; `changed` is called after every change. Returns how to read, set and mark them.
export function buildForm(form, features, changed) {
  form.replaceChildren();
  const fields = new Map();
  features.forEach((feature, place) => {
    const id = `field-${place}`;
    const field = (feature.kind === "number" ? numberField : categoryField)(feature, id, changed);
    const note = make("p", { class: "note", id: `${id}-note` });
    form.append(make("div", { class: "field" }, make("label", { for: id }, feature.name || "(no name)"), ...field.parts, note));
    fields.set(feature.name, { ...field, note });
  });
  form.addEventListener("submit", (event) => event.preventDefault());

  function note(name, text, wrong = false) {
    const field = fields.get(name);
    if (!field) return;
    field.note.textContent = text;
    field.note.classList.toggle("wrong", wrong);
    for (const input of field.inputs) {
      if (wrong) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    }
  }

  return {
    set(person) { for (const [name, field] of fields) if (name in person) field.set(person[name]); },
    // Returns the person, or null where a field is not usable; says so beside it.
    read() {
      const person = {};
      let usable = true;
      for (const [name, field] of fields) {
        const { value, problem } = field.read();
        note(name, problem ?? "", problem !== undefined);
        if (problem !== undefined) usable = false;
        else person[name] = value;
      }
      return usable ? person : null;
    },
    note,
  };
}
