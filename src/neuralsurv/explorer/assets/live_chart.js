// Charts that are drawn in the browser, again after every answer: lines with bands over time, and intervals.
import { at, draw, make, number, ticks, valueReader } from "./chart.js";

const LEFT = 68, RIGHT = 14, TOP = 12, BOTTOM = 46, NARROW = 480;

// Charts are drawn in pixels of the page, so that their text is as large as any other, and again when its width changes.
function fitted(figure, again) {
  let width = 0;
  new ResizeObserver(() => {
    if (Math.abs(figure.clientWidth - width) > 1) again();
  }).observe(figure);
  return () => { width = figure.clientWidth; return Math.max(280, width); };
}

const round = (value) => Math.round(value * 100) / 100;

// Maps a range onto pixels; what lies outside is drawn at the end.
const scale = ([low, high], from, to) => (value) => round(from + (Math.min(high, Math.max(low, value)) - low) / (high - low) * (to - from));

function frame(width, height, xRange, yRange, xTitle, yTitle, yText) {
  const right = width - RIGHT, bottom = height - BOTTOM;
  const px = scale(xRange, LEFT, right), py = scale(yRange, bottom, TOP);
  const parts = [draw("line", { class: "axis", x1: LEFT, x2: right, y1: bottom, y2: bottom })];
  for (const x of ticks(...xRange)) {
    parts.push(draw("line", { class: "grid", x1: px(x), x2: px(x), y1: TOP, y2: bottom }));
    parts.push(draw("text", { class: "tick", x: px(x), y: bottom + 17, "text-anchor": "middle" }, number(x)));
  }
  if (yText) {
    for (const y of ticks(...yRange)) {
      parts.push(draw("line", { class: "grid", x1: LEFT, x2: right, y1: py(y), y2: py(y) }));
      parts.push(draw("text", { class: "tick", x: LEFT - 7, y: py(y) + 4, "text-anchor": "end" }, yText(y)));
    }
    parts.push(draw("text", { class: "title", transform: `translate(13 ${(TOP + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, yTitle));
  }
  parts.push(draw("text", { class: "title", x: (LEFT + right) / 2, y: height - 8, "text-anchor": "middle" }, xTitle));
  return { parts, px, py, right, bottom };
}

// A chart of lines. `text` formats a value, `moved` is called with every time that the reader points at.
export function lineChart(figure, { height: tall = 340, yTitle, text, axisText = number, moved = () => {} }) {
  const svg = draw("svg", { class: "chart", role: "img", "aria-label": `${yTitle}, not drawn yet` });
  const values = make("p", { class: "values", "aria-live": "off" });
  figure.prepend(svg, values);
  const reader = valueReader(svg, values, { text, moved });
  let asked = null;
  const measure = fitted(figure, () => { if (asked !== null) update(asked); });

  // series: {name, colour, x, y, low, high, guess}; rules: places of thin lines; shades: [from, to] not to be trusted.
  function update(wanted) {
    asked = wanted;
    const { x, y, xTitle, series, rules = [], shades = [], alt, at: where = null } = wanted;
    const width = measure(), height = width < NARROW ? Math.min(tall, 215) : tall;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const { parts, px, py, right, bottom } = frame(width, height, x, y, xTitle, yTitle, axisText);
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
    // Names stand beside their lines: not everybody can tell lines apart by colour alone.
    series.forEach((line, k) => {
      if (series.length < 2) return;
      const place = x[0] + (x[1] - x[0]) * (0.12 + 0.14 * k);
      const end = right - 7 * line.name.length;
      svg.append(draw("text", { class: `name fill${line.colour}`, x: Math.min(px(place) + 5, end), y: Math.max(TOP + 12, py(at(line.x, line.y, place)) - 6) }, line.name));
    });
    for (const rule of rules) svg.append(draw("line", { class: "rule", x1: px(rule), x2: px(rule), y1: TOP, y2: bottom }));
    svg.setAttribute("aria-label", `${alt} Arrow keys read values.`);
    reader.take({ xTitle, range: x, box: [LEFT, right, TOP, bottom], series });
    reader.show(where ?? reader.place ?? (x[0] + x[1]) / 2);
  }

  return { update, show: reader.show, get place() { return reader.place; } };
}

// A chart of horizontal intervals, one for each person; an open end means beyond the last time seen.
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
