// Numbers and sentences.

export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(2);
  return size >= 1000 ? String(Math.round(value)) : String(+value.toPrecision(3));
}

export function percent(value) {
  if (value === null || value === undefined) return "–";
  return value > 0 && value < 0.01 ? "under 1 %" : value < 1 && value > 0.99 ? "over 99 %" : `${Math.round(100 * value)} %`;
}

// A time that may lie beyond what the model has seen.
export function time(value, last) {
  return value === null ? `after ${short(last)}` : short(value);
}

export function interval(estimate, last) {
  return `${time(estimate.median, last)} (${time(estimate.lower, last)} to ${time(estimate.upper, last)})`;
}

export function value(found) {
  return found === null ? "not known" : typeof found === "number" ? short(found) : found === true ? "yes" : found === false ? "no" : String(found);
}

export function outsideSentence(found, values) {
  const where = found.side === "above" ? "above" : "below";
  return `${found.column} ${short(values[found.column])} lies ${where} ${short(found.low)} to ${short(found.high)}, the range the model was trained on: the prediction is a guess.`;
}

export function filledSentence(columns) {
  return `${columns.join(", ")} not known: every draw takes another value, spread like those of the training rows, so the band is wider.`;
}

// Round numbers from low to high, about `count` of them.
export function ticks(low, high, count = 5) {
  if (!(high > low)) return [low];
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((size) => size * power).find((size) => size >= raw * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k <= Math.floor(high / step + 1e-9); k++) found.push(+(k * step).toPrecision(12));
  return found;
}

// Makes an element; attributes that are false are left out, children may be texts.
export function make(tag, attributes = {}, ...children) {
  const found = document.createElement(tag);
  for (const [name, content] of Object.entries(attributes)) {
    if (content === true) found.setAttribute(name, "");
    else if (content !== false && content !== null && content !== undefined) found.setAttribute(name, content);
  }
  found.append(...children);
  return found;
}
