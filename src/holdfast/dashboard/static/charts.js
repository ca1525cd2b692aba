// Charts of the last 24 hours.
"use strict";
(() => {
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let drawn = [];
  function draw(id, data, series, format) {
    const container = document.getElementById(id);
    container.replaceChildren();
    const axis = { stroke: color("--faint"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px Inter" };
    const chart = new uPlot({
      width: Math.max(container.clientWidth, 200), height: 160, cursor: { y: false, points: { size: 6 } }, legend: { live: false },
      scales: { x: { time: true }, y: { range: (self, low, high) => [0, Math.max(high * 1.15, 1)] } },
      axes: [{ ...axis, space: 60, size: 30, values: (self, ticks) => ticks.map((at) => new Date(at * 1000).toTimeString().slice(0, 5)) }, { ...axis, size: 46, values: (self, ticks) => ticks.map(format) }],
      series: [{}, ...series],
    }, data, container);
    drawn.push([container, chart]);
  }
  const bars = uPlot.paths.bars({ size: [0.7, 14], radius: 0.25 });
  const short = (n) => (n >= 1e6 ? `${n / 1e6}M` : n >= 1e3 ? `${n / 1e3}k` : `${n}`);
  async function load() {
    const response = await fetch("/ui/health/charts");
    if (!response.ok) return;
    const day = await response.json();
    drawn.forEach(([, chart]) => chart.destroy());
    drawn = [];
    const run = color("--run"), bad = color("--bad"), wait = color("--wait"), soft = (c) => `color-mix(in srgb, ${c} 70%, transparent)`;
    draw("chart-turns", [day.at, day.turns, day.failed], [
      { label: "turns", stroke: run, fill: soft(run), paths: bars, points: { show: false } },
      { label: "failed or interrupted", stroke: bad, fill: bad, paths: bars, points: { show: false } }], short);
    draw("chart-tokens", [day.at, day.tokens_in, day.tokens_out], [
      { label: "in", stroke: wait, width: 2, fill: `color-mix(in srgb, ${wait} 14%, transparent)`, points: { show: false } },
      { label: "out", stroke: run, width: 2, fill: `color-mix(in srgb, ${run} 16%, transparent)`, points: { show: false } }], short);
    draw("chart-latency", [day.at, day.median, day.slowest], [
      { label: "median", stroke: run, width: 2, spanGaps: true, points: { show: true, size: 5 } },
      { label: "slowest", stroke: color("--halt"), width: 1.5, dash: [4, 4], spanGaps: true, points: { show: true, size: 4 } }], (n) => `${n} s`);
  }
  load();
  let due = 0;
  document.addEventListener("store-changed", () => { clearTimeout(due); due = setTimeout(load, 4000); });
  document.addEventListener("theme-changed", load);
  addEventListener("resize", () => drawn.forEach(([container, chart]) => chart.setSize({ width: Math.max(container.clientWidth, 200), height: 160 })));
})();
