// Probabilities, times and sentences as text.
import { number } from "./chart.js";

export function percent(value) {
  if (value === null || value === undefined) return "–";
  return value > 0 && value < 0.01 ? "under 1 %" : value < 1 && value > 0.99 ? "over 99 %" : `${Math.round(100 * value)} %`;
}

// A time that may lie beyond what the model has seen.
export function time(value, last) {
  return value === null ? `after ${number(last)}` : number(value);
}

export function interval(estimate, last) {
  return `${time(estimate.median, last)} (${time(estimate.lower, last)} to ${time(estimate.upper, last)})`;
}

export function value(found) {
  return found === null ? "not known" : typeof found === "number" ? number(found) : found === true ? "yes" : found === false ? "no" : String(found);
}

export function outsideSentence(found, values) {
  const where = found.side === "above" ? "above" : "below";
  return `${found.column} ${number(values[found.column])} lies ${where} ${number(found.low)} to ${number(found.high)}, the range the model was trained on: the prediction is an extrapolation.`;
}

export function filledSentence(columns) {
  return `${columns.join(", ")} not known: every draw takes another value, spread like those of the training rows, so the band is wider.`;
}
