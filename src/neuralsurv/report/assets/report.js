// Adds to pictures that are complete without it: values under the pointer or the arrow keys, and lines that can be hidden.
"use strict";
(() => {
  const short = (value) => value === null ? "–" : Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3)
    ? value.toExponential(2) : String(+value.toPrecision(3));

  // The value of a line at x: the last step before it, or between its two neighbours.
  function at(line, values, x) {
    const xs = line.x, end = xs[xs.length - 1];
    // Stored numbers are rounded, so an end of the axis may lie a hair beyond the line's own.
    const slack = (end - xs[0]) * 1e-3;
    if (x < xs[0] - slack || x > end + slack) return null;
    x = Math.min(end, Math.max(xs[0], x));
    let low = 0, high = xs.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; if (xs[middle] <= x) low = middle; else high = middle; }
    if (xs[high] <= x) low = high;
    if (line.steps || low === high || values[low] === null || values[high] === null) return values[low];
    const share = (x - xs[low]) / (xs[high] - xs[low] || 1);
    return values[low] + share * (values[high] - values[low]);
  }

  for (const figure of document.querySelectorAll("figure")) {
    const source = figure.querySelector('script[type="application/json"]');
    const svg = figure.querySelector("svg.chart");
    if (!source || !svg) continue;
    const { x: xTitle, series } = JSON.parse(source.textContent);
    const [left, right, top, bottom] = svg.dataset.box.split(" ").map(Number);
    const [first, last] = svg.dataset.range.split(" ").map(Number);
    const shown = series.map(() => true);

    const guide = document.createElementNS("http://www.w3.org/2000/svg", "line");
    guide.setAttribute("class", "guide off");
    guide.setAttribute("y1", top); guide.setAttribute("y2", bottom);
    svg.append(guide);
    const values = document.createElement("p");
    values.className = "values";
    values.setAttribute("aria-live", "polite");
    values.textContent = "Point, tap or use the arrow keys to read values.";
    figure.insertBefore(values, figure.querySelector("figcaption"));

    let place = null;
    function show(x) {
      place = Math.min(last, Math.max(first, x));
      const px = left + (place - first) / (last - first || 1) * (right - left);
      guide.setAttribute("x1", px); guide.setAttribute("x2", px); guide.setAttribute("class", "guide");
      values.replaceChildren();
      const head = document.createElement("span");
      head.textContent = `${xTitle} ${short(place)}`;
      values.append(head);
      series.forEach((line, k) => {
        const y = at(line, line.y, place);
        if (!shown[k] || y === null) return;
        const item = document.createElement("span"), dot = document.createElement("i");
        dot.style.background = `var(--c${line.colour})`;
        const ends = line.low ? ` (${line.band} ${short(at(line, line.low, place))} to ${short(at(line, line.high, place))})` : "";
        item.append(dot, `${line.name}: ${short(y)}${ends}`);
        values.append(item);
      });
    }

    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const px = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
      show(first + (px - left) / (right - left) * (last - first));
    });
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10 }[event.key];
      if (event.key === "Home") show(first);
      else if (event.key === "End") show(last);
      else if (step) show((place ?? first) + step * (last - first) / 100);
      else return;
      event.preventDefault();
    });

    for (const entry of figure.querySelectorAll(".legend li")) {
      const k = Number(entry.dataset.series);
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.append(...entry.childNodes);
      entry.append(button);
      button.addEventListener("click", () => {
        shown[k] = !shown[k];
        button.setAttribute("aria-pressed", String(shown[k]));
        svg.querySelector(`g[data-series="${k}"]`).classList.toggle("off", !shown[k]);
        if (place !== null) show(place);
      });
    }
  }

  // A printed page shows what was folded away.
  addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details")) part.open = true; });
})();
