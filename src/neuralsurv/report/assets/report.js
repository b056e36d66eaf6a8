// Adds to pictures that are complete without it: values under the pointer or the arrow keys, and lines that can be hidden.
// The page puts chart.js before it, in the same script.

for (const figure of document.querySelectorAll("figure")) {
  const source = figure.querySelector('script[type="application/json"]');
  if (!source) continue;
  const chart = JSON.parse(source.textContent), svg = figure.querySelector("svg.chart");
  const values = make("p", { class: "values" }, "Point, tap or use the arrow keys to read values.");
  figure.insertBefore(values, figure.querySelector("figcaption"));
  const reader = valueReader(svg, values);
  reader.take(chart);

  figure.querySelectorAll(".legend li").forEach((entry, k) => {
    const button = make("button", { type: "button", "aria-pressed": "true" }, ...entry.childNodes);
    entry.append(button);
    button.addEventListener("click", () => {
      const hidden = chart.series[k].hidden = !chart.series[k].hidden;
      button.setAttribute("aria-pressed", String(!hidden));
      svg.querySelector(`g[data-series="${k}"]`).classList.toggle("off", hidden);
      if (reader.place !== null) reader.show(reader.place);
    });
  });
}

// A printed page shows what was folded away.
addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details")) part.open = true; });
