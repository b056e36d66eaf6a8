// What the charts of the report and of the explorer share: elements, numbers, ticks, and values read off a chart.
// `number` and `ticks` give what the functions of the same names in report/svg.py give, and a test compares them.

// Makes an element; attributes that are false or null are left out, children may be texts.
export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, content] of Object.entries(attributes)) {
    if (content !== false && content !== null && content !== undefined) element.setAttribute(name, content === true ? "" : content);
  }
  element.append(...children);
  return element;
}

// A number with three digits, or all of them before the decimal point.
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "–∞";
  const rounded = +value.toPrecision(3), size = Math.abs(rounded);
  if (size >= 1e3 && size < 1e6) return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
  return size >= 1e6 || (size !== 0 && size < 1e-4) ? rounded.toExponential() : String(rounded);
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

// The value of a line at x: the last step before it, or between its two neighbours.
export function at(xs, ys, x, steps = false) {
  const first = xs[0], last = xs[xs.length - 1];
  // Stored numbers are rounded, so an end of the axis may lie slightly beyond that of the line.
  const slack = (last - first) * 1e-5;
  if (x < first - slack || x > last + slack) return null;
  let low = 0, high = xs.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (xs[middle] <= x) low = middle; else high = middle; }
  if (xs[high] <= x) low = high;
  if (steps || low === high || ys[low] === null || ys[high] === null) return ys[low];
  const share = Math.max(0, x - xs[low]) / (xs[high] - xs[low]);
  return ys[low] + share * (ys[high] - ys[low]);
}

// Shows the values of a chart at the place of the pointer, or at one chosen with the arrow keys. `text` formats a value;
// `moved` is called with every place that the reader chooses.
export function valueReader(svg, values, { text = number, moved = () => {} } = {}) {
  const guide = draw("line", { class: "guide off" });
  let chart = null, place = null;

  function show(x) {
    const [first, last] = chart.range, [left, right, top, bottom] = chart.box;
    place = Math.min(last, Math.max(first, x));
    const px = left + (place - first) / (last - first || 1) * (right - left);
    for (const [name, content] of Object.entries({ x1: px, x2: px, y1: top, y2: bottom, class: "guide" })) guide.setAttribute(name, content);
    const parts = [make("span", {}, `${chart.xTitle} ${number(place)}`)];
    for (const line of chart.series) {
      const [y, low, high] = [line.y, line.low, line.high].map((ys) => (ys ? at(line.x, ys, place, line.steps) : null));
      if (line.hidden || y === null) continue;
      const band = line.low ? ` (${line.band ? `${line.band} ` : ""}${text(low)} to ${text(high)})` : "";
      parts.push(make("span", {}, make("i", { class: `dot${line.colour}` }), `${line.name}: ${text(y)}${band}`));
    }
    values.replaceChildren(...parts);
  }

  // Only what the keys ask for is spoken: a moving pointer would never let a screen reader finish.
  function choose(x, live) {
    values.setAttribute("aria-live", live);
    show(x);
    moved(place);
  }

  svg.setAttribute("tabindex", "0");
  svg.addEventListener("pointermove", (event) => {
    if (chart === null) return;
    const [first, last] = chart.range, [left, right] = chart.box, box = svg.getBoundingClientRect();
    const px = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    choose(first + (px - left) / (right - left) * (last - first), "off");
  });
  svg.addEventListener("keydown", (event) => {
    if (chart === null) return;
    const [first, last] = chart.range, step = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10 }[event.key];
    if (event.key === "Home") choose(first, "polite");
    else if (event.key === "End") choose(last, "polite");
    else if (step) choose((place ?? first) + step * (last - first) / 100, "polite");
    else return;
    event.preventDefault();
  });

  return {
    // Takes a chart that has been drawn: {xTitle, range, box: [left, right, top, bottom], series}.
    take(drawn) { chart = drawn; svg.append(guide); },
    show(x) { if (chart !== null) show(x); },
    get place() { return place; },
  };
}
