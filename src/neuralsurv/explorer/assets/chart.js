// Pictures with a time axis: lines with bands, read with the pointer or the arrow keys.
import { make, short, ticks } from "./words.js";

const LEFT = 68, RIGHT = 14, TOP = 12, BOTTOM = 46, NARROW = 480;

export function draw(tag, attributes = {}, ...children) {
  const found = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, content] of Object.entries(attributes)) found.setAttribute(name, content);
  found.append(...children);
  return found;
}

// Pictures are drawn in pixels of the page, so that their text is as large as any other, and anew when the page changes.
function fitted(figure, again) {
  let width = 0;
  new ResizeObserver(() => {
    if (Math.abs(figure.clientWidth - width) > 1) again();
  }).observe(figure);
  return () => { width = figure.clientWidth; return Math.max(280, width); };
}

const round = (number) => Math.round(number * 100) / 100;

// The value of a line at x, between its two neighbours.
export function at(xs, ys, x) {
  if (x < xs[0] || x > xs[xs.length - 1]) return null;
  let low = 0, high = xs.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (xs[middle] <= x) low = middle; else high = middle; }
  const share = high === low ? 0 : (x - xs[low]) / (xs[high] - xs[low]);
  return ys[low] + share * (ys[high] - ys[low]);
}

function frame(WIDTH, height, xRange, yRange, xTitle, yTitle, yText) {
  const bottom = height - BOTTOM;
  const px = (x) => round(LEFT + (Math.min(xRange[1], Math.max(xRange[0], x)) - xRange[0]) / (xRange[1] - xRange[0]) * (WIDTH - LEFT - RIGHT));
  const py = (y) => round(bottom - (Math.min(yRange[1], Math.max(yRange[0], y)) - yRange[0]) / (yRange[1] - yRange[0]) * (bottom - TOP));
  const parts = [draw("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: bottom, y2: bottom })];
  for (const x of ticks(...xRange)) {
    parts.push(draw("line", { class: "grid", x1: px(x), x2: px(x), y1: TOP, y2: bottom }));
    parts.push(draw("text", { class: "tick", x: px(x), y: bottom + 17, "text-anchor": "middle" }, short(x)));
  }
  if (yText) {
    for (const y of ticks(...yRange)) {
      parts.push(draw("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: py(y), y2: py(y) }));
      parts.push(draw("text", { class: "tick", x: LEFT - 7, y: py(y) + 4, "text-anchor": "end" }, yText(y)));
    }
    parts.push(draw("text", { class: "title", transform: `translate(13 ${(TOP + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, yTitle));
  }
  parts.push(draw("text", { class: "title", x: (LEFT + WIDTH - RIGHT) / 2, y: height - 8, "text-anchor": "middle" }, xTitle));
  return { parts, px, py, bottom };
}

// A picture of lines. `text` turns a value into words, `read` is told the place that is read.
export function lineChart(figure, { height: tall = 340, yTitle, text, axisText = short, read = () => {} }) {
  const svg = draw("svg", { class: "chart", role: "img", tabindex: "0", "aria-label": `${yTitle}, not drawn yet` });
  let asked = null;
  const measure = fitted(figure, () => { if (asked !== null) update(asked); });
  const values = make("p", { class: "values", "aria-live": "off" });
  figure.prepend(svg, values);
  const guide = draw("line", { class: "guide off" });
  let shown = null, place = null;

  function show(x, quietly = false) {
    if (shown === null) return;
    place = Math.min(shown.x[1], Math.max(shown.x[0], x));
    const at_px = shown.px(place);
    for (const [name, content] of [["x1", at_px], ["x2", at_px], ["y1", TOP], ["y2", shown.bottom], ["class", "guide"]]) guide.setAttribute(name, content);
    const parts = [make("span", {}, `${shown.xTitle} ${short(place)}`)];
    for (const line of shown.series) {
      const y = at(line.x, line.y, place);
      if (y === null) continue;
      const band = line.low ? ` (${text(at(line.x, line.low, place))} to ${text(at(line.x, line.high, place))})` : "";
      parts.push(make("span", {}, make("i", { class: `dot${line.colour}` }), `${line.name}: ${text(y)}${band}`));
    }
    values.replaceChildren(...parts);
    if (!quietly) read(place);
  }

  svg.addEventListener("pointermove", (event) => {
    if (shown === null) return;
    const box = svg.getBoundingClientRect();
    const px = (event.clientX - box.left) / box.width * shown.width;
    values.setAttribute("aria-live", "off");
    show(shown.x[0] + (px - LEFT) / (shown.width - LEFT - RIGHT) * (shown.x[1] - shown.x[0]));
  });
  svg.addEventListener("keydown", (event) => {
    if (shown === null) return;
    const step = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10 }[event.key];
    // What the keys ask for is also spoken.
    values.setAttribute("aria-live", "polite");
    if (event.key === "Home") show(shown.x[0]);
    else if (event.key === "End") show(shown.x[1]);
    else if (step) show((place ?? shown.x[0]) + step * (shown.x[1] - shown.x[0]) / 100);
    else return;
    event.preventDefault();
  });

  // series: {name, colour, x, y, low, high, guess}; rules: places of thin lines; shades: [from, to] not to be trusted.
  function update(wanted) {
    asked = wanted;
    const { x, y, xTitle, series, rules = [], shades = [], alt, at: where = null } = wanted;
    const width = measure(), height = width < NARROW ? Math.min(tall, 215) : tall;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const { parts, px, py, bottom } = frame(width, height, x, y, xTitle, yTitle, axisText);
    svg.replaceChildren(...parts);
    for (const [from, to] of shades) {
      if (px(to) > px(from)) svg.append(draw("rect", { class: "shade", x: px(from), width: round(px(to) - px(from)), y: TOP, height: bottom - TOP }));
    }
    const points = (xs, ys) => xs.map((one, k) => `${px(one)},${py(ys[k])}`).join(" ");
    for (const line of series) {
      const group = draw("g", { class: "series" });
      if (line.low) {
        const outline = `${points(line.x, line.low)} ${points([...line.x].reverse(), [...line.high].reverse())}`;
        group.append(draw("polygon", { class: `band fill${line.colour}`, points: outline }));
      }
      group.append(draw("polyline", { class: `line stroke${line.colour}${line.guess ? " dashed" : ""}`, points: points(line.x, line.y) }));
      svg.append(group);
    }
    // Names stand beside their lines: colour alone does not tell everybody who is who.
    series.forEach((line, k) => {
      if (series.length < 2) return;
      const place = x[0] + (x[1] - x[0]) * (0.12 + 0.14 * k);
      const end = width - RIGHT - 7 * line.name.length;
      svg.append(draw("text", { class: `name fill${line.colour}`, x: Math.min(px(place) + 5, end), y: Math.max(TOP + 12, py(at(line.x, line.y, place)) - 6) }, line.name));
    });
    for (const rule of rules) svg.append(draw("line", { class: "rule", x1: px(rule), x2: px(rule), y1: TOP, y2: bottom }));
    svg.append(guide);
    svg.setAttribute("aria-label", `${alt} Arrow keys read values.`);
    shown = { x, px, bottom, xTitle, series, width };
    show(where ?? place ?? (x[0] + x[1]) / 2, true);
  }

  return { update, show: (x) => show(x, true), get place() { return place; } };
}

// A picture of horizontal intervals, one for each person; an open end means beyond the last time seen.
export function intervalChart(figure) {
  const svg = draw("svg", { class: "chart", role: "img", "aria-label": "intervals, not drawn yet" });
  figure.prepend(svg);
  let asked = null;
  const measure = fitted(figure, () => { if (asked !== null) update(asked); });
  function update(wanted) {
    asked = wanted;
    const { x, xTitle, rows, last, alt } = wanted;
    const width = measure(), height = TOP + BOTTOM + 44 * rows.length;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const { parts, px } = frame(width, height, x, [0, 1], xTitle, "", null);
    svg.replaceChildren(...parts);
    rows.forEach((row, k) => {
      const y = TOP + 44 * k + 30, open = row.upper === null, end = px(row.upper ?? last);
      const line = (from, to, kind) => draw("line", { class: `${kind} stroke${row.colour}`, x1: px(from), x2: px(to), y1: y, y2: y });
      svg.append(line(row.lower ?? last, row.upper ?? last, "thin"));
      if (row.inner) svg.append(line(row.inner.lower ?? last, row.inner.upper ?? last, "thick"));
      if (open) svg.append(draw("path", { class: `line stroke${row.colour}`, d: `M${end - 6} ${y - 5} L${end} ${y} L${end - 6} ${y + 5}` }));
      svg.append(draw("circle", { class: `mark${row.colour}`, cx: px(row.median ?? last), cy: y, r: 4.5 }));
      svg.append(draw("text", { class: `name fill${row.colour}`, x: LEFT + 4, y: y - 11 }, row.name));
    });
    svg.setAttribute("aria-label", alt);
  }
  return { update };
}
