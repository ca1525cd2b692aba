// Space: a dot for each session, grouped by worker or gateway, animated by its state.
// Resting dots are painted once onto a background layer; only moving dots are redrawn, about twenty times a second.
"use strict";
(() => {
  const canvas = document.getElementById("space-canvas"), view = canvas.getContext("2d");
  const tooltip = document.getElementById("tooltip"), scrub = document.getElementById("scrub"), clock = document.getElementById("clock");
  const nowButton = document.getElementById("now-button"), density = document.getElementById("density"), status = document.getElementById("space-status"), empty = document.getElementById("space-empty"), limitNote = document.getElementById("space-limit");
  const NAMES = ["waiting", "thinking", "running a tool", "waiting for approval", "interrupted", "quarantined", "ended", "ended: owner died"];
  const COLORS = ["--wait", "--run", "#3b82c4", "--ask", "--halt", "--bad", "--end", "--bad"];
  const MOVES = [false, true, true, true, false, false, false, false];
  const FRAME = 50, DAY = 86400, reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
  let dots = new Map(), groups = [], sprites = [], background = null, scale = 1, width = 0, height = 0;
  let scrubbedTo = null, history = null, selected = null, stale = true;

  const color = (name) => (name[0] === "-" ? getComputedStyle(document.documentElement).getPropertyValue(name).trim() : name);
  function drawSprite(fill, radius, glow) {
    const size = Math.ceil((radius + glow) * 2 + 2), one = document.createElement("canvas"), ratio = devicePixelRatio || 1;
    one.width = one.height = size * ratio;
    const layer = one.getContext("2d");
    layer.scale(ratio, ratio);
    const middle = size / 2;
    if (glow) {
      const glowGradient = layer.createRadialGradient(middle, middle, radius * 0.6, middle, middle, radius + glow);
      glowGradient.addColorStop(0, `color-mix(in srgb, ${fill} 45%, transparent)`);
      glowGradient.addColorStop(1, `color-mix(in srgb, ${fill} 1%, transparent)`);
      layer.fillStyle = glowGradient;
      layer.fillRect(0, 0, size, size);
    }
    layer.fillStyle = fill;
    layer.beginPath();
    layer.arc(middle, middle, radius, 0, Math.PI * 2);
    layer.fill();
    return { one, size };
  }
  function makeSprites() {
    sprites = COLORS.map((name, state) => {
      const fill = color(name);
      return state >= 6 ? drawSprite(`color-mix(in srgb, ${fill} ${state === 7 ? 70 : 45}%, transparent)`, 3, 0) : MOVES[state] ? drawSprite(fill, 5, 9) : drawSprite(fill, 4.2, 0);
    });
  }

  // Each group is a disc; its dots lie on a spiral, busy sessions in the middle. Discs are packed around the largest one, to
  // fit the shape of the canvas, and no label overlaps another group. A dot keeps its slot and a disc has spare capacity, so that
  // the picture stays stable while sessions change.
  const GAP = 24, FONT = "560 12px Inter, sans-serif", NAME = 30;
  const overlap = (a, b) => Math.abs(a.x - b.x) < a.w + b.w && Math.abs(a.y - b.y) < a.h + b.h;
  const label = (group) => ({ x: group.x, y: group.y + group.radius + 12 / scale, w: group.half / scale, h: 14 / scale });
  const covers = (disc, name) => Math.hypot(Math.max(Math.abs(name.x - disc.x) - name.w, 0), Math.max(Math.abs(name.y - disc.y) - name.h, 0)) < disc.radius;
  const clash = (a, b) => Math.hypot(a.x - b.x, a.y - b.y) < a.radius + b.radius + GAP
    || overlap(label(a), label(b)) || covers(b, label(a)) || covers(a, label(b));
  function pack() {
    const wide = Math.max(1, width / height), tall = Math.max(1, height / width);
    groups.forEach((group, place) => {
      for (let step = 0; step < 20000; step++) {
        group.x = Math.cos(step * 0.25) * step * 0.3 * wide;
        group.y = Math.sin(step * 0.25) * step * 0.3 * tall;
        if (groups.slice(0, place).every((other) => !clash(group, other))) break;
      }
    });
    const side = (group) => Math.max(group.radius, group.half / scale);
    const left = Math.min(...groups.map((g) => g.x - side(g))), right = Math.max(...groups.map((g) => g.x + side(g)));
    const top = Math.min(...groups.map((g) => g.y - g.radius)), bottom = Math.max(...groups.map((g) => g.y + g.radius + 24 / scale));
    scale = Math.min((width - 24) / (right - left), (height - 24) / (bottom - top), 2.4);
    for (const group of groups) {
      group.sx = width / 2 + (group.x - (left + right) / 2) * scale;
      group.sy = height / 2 + (group.y - (top + bottom) / 2) * scale;
    }
  }
  const slots = new Map(), capacities = new Map();
  const isBusy = (dot) => MOVES[dot.state] || dot.state === 4 || dot.state === 5;
  const rank = (dot) => (isBusy(dot) ? 0 : dot.state === 0 ? 1 : 2);
  function assignSlots(name, members) {
    const wanted = new Set(members), places = (slots.get(name) ?? []).map((dot) => (wanted.delete(dot) ? dot : null));
    const coming = [...wanted].sort((a, b) => rank(a) - rank(b) || (a.id < b.id ? 1 : -1));
    for (let n = 0; coming.length && n < places.length; n++) places[n] ??= coming.shift();
    places.push(...coming);
    for (let n = 0; n < places.length; n++) {
      while (places.length && !places.at(-1)) places.pop();
      if (n < places.length) places[n] ??= places.pop();
    }
    let free = 0;
    for (let n = places.length - 1, middle = places.filter(isBusy).length * 1.3 + 3; n > middle; n--) {
      if (!isBusy(places[n])) continue;
      while (isBusy(places[free])) free++;
      [places[free], places[n]] = [places[n], places[free]];
    }
    slots.set(name, places);
    return places;
  }
  function capacity(name, count) {
    const had = capacities.get(name) ?? 0;
    if (count > had || count < had / 2) capacities.set(name, Math.ceil(count * 1.2) + 1);
    return capacities.get(name);
  }
  let packed = "";
  function arrange() {
    const byGroup = new Map();
    for (const dot of dots.values()) if (dot.shown) (byGroup.get(dot.g) ?? byGroup.set(dot.g, []).get(dot.g)).push(dot);
    view.font = FONT;
    const before = new Map(groups.map((group) => [group.name, group]));
    groups = [...byGroup].map(([name, all]) => {
      const members = assignSlots(name, all), text = `${name.length > NAME ? name.slice(0, NAME - 1) + "…" : name}  ${members.length}`;
      const half = Math.ceil(view.measureText(text).width / 20) * 10 + 10, { x, y, sx, sy } = before.get(name) ?? {};
      return { name, text, members, half, radius: 15 * Math.sqrt(capacity(name, members.length)) * 0.62 + 16, x, y, sx, sy };
    }).sort((a, b) => b.radius - a.radius || (a.name < b.name ? -1 : 1));
    stale = true;
    if (!width || !groups.length) return;
    const shape = JSON.stringify([width, height, ...groups.map(({ name, radius, half }) => [name, radius, half])]);
    if (shape !== packed) {
      packed = shape;
      scale = 1;
      pack();
      pack(); // labels do not scale with the discs: the second pass knows the scale
    }
    for (const group of groups) {
      group.members.forEach((dot, n) => {
        const far = 15 * 0.62 * Math.sqrt(n + 0.5) * scale, angle = n * 2.399963;
        dot.tx = group.sx + Math.cos(angle) * far;
        dot.ty = group.sy + Math.sin(angle) * far;
        if (dot.x === undefined) { dot.x = dot.tx; dot.y = dot.ty; }
      });
    }
  }

  function paintBackground() {
    const ratio = devicePixelRatio || 1;
    background = document.createElement("canvas");
    background.width = canvas.width;
    background.height = canvas.height;
    const layer = background.getContext("2d");
    layer.scale(ratio, ratio);
    layer.fillStyle = color("--sunken");
    layer.fillRect(0, 0, width, height);
    layer.textAlign = "center";
    for (const group of groups) {
      const radius = group.radius * scale;
      layer.beginPath();
      layer.arc(group.sx, group.sy, radius, 0, Math.PI * 2);
      const gradient = layer.createRadialGradient(group.sx, group.sy, radius * 0.1, group.sx, group.sy, radius);
      gradient.addColorStop(0, `color-mix(in srgb, ${color("--accent")} 13%, ${color("--card")})`);
      gradient.addColorStop(1, color("--card"));
      layer.fillStyle = gradient;
      layer.fill();
      layer.strokeStyle = color("--line-strong");
      layer.lineWidth = 1;
      layer.stroke();
      layer.font = FONT;
      layer.fillStyle = color("--soft");
      layer.fillText(group.text, group.sx, group.sy + radius + 16);
    }
    for (const dot of dots.values()) if (dot.shown && !isAnimated(dot) && !isTravelling(dot)) draw(layer, dot, dot.x, dot.y, 1);
    stale = false;
  }
  // A dot on its way to a new position is drawn with the moving dots, so that the background need not be repainted.
  const isTravelling = (dot) => Math.abs(dot.tx - dot.x) + Math.abs(dot.ty - dot.y) > 0.5;
  const isAnimated = (dot) => MOVES[dot.state] && !reducedMotion.matches;
  function draw(layer, dot, x, y, zoom) {
    const { size, one } = sprites[dot.state], wide = size * zoom * Math.min(Math.max(scale, 0.45), 1.6);
    layer.drawImage(one, x - wide / 2, y - wide / 2, wide, wide);
  }

  let painted = 0;
  function frame(at) {
    requestAnimationFrame(frame);
    if (document.hidden || at - painted < FRAME || !width) return;
    painted = at;
    let anyTravelling = false;
    for (const dot of dots.values()) {
      if (!dot.shown || !isTravelling(dot)) continue;
      anyTravelling = true;
      dot.x += (dot.tx - dot.x) * 0.2;
      dot.y += (dot.ty - dot.y) * 0.2;
      if (!isTravelling(dot) || reducedMotion.matches) { dot.x = dot.tx; dot.y = dot.ty; stale = true; }
    }
    if (stale) paintBackground();
    else if (reducedMotion.matches && !anyTravelling) return;
    const ratio = devicePixelRatio || 1;
    view.setTransform(1, 0, 0, 1, 0, 0);
    view.drawImage(background, 0, 0);
    view.scale(ratio, ratio);
    for (const dot of dots.values()) {
      if (!dot.shown || !(isAnimated(dot) || isTravelling(dot))) continue;
      if (!isAnimated(dot)) { draw(view, dot, dot.x, dot.y, 1); continue; }
      const beat = at / 1000 + dot.phase;
      const sway = dot.state === 3 ? [0, -Math.abs(Math.sin(beat * 2.4)) * 5] : [Math.cos(beat * 0.9) * 2.2, Math.sin(beat * 1.2) * 2.2];
      draw(view, dot, dot.x + sway[0] * scale, dot.y + sway[1] * scale, dot.state === 1 ? 1 + 0.16 * Math.sin(beat * 3) : 1);
      if (dot.state === 2) {
        view.strokeStyle = "#3b82c4";
        view.lineWidth = 1.6;
        view.beginPath();
        view.arc(dot.x + sway[0] * scale, dot.y + sway[1] * scale, 8.5 * Math.min(scale, 1.3), beat * 3, beat * 3 + 2.1);
        view.stroke();
      }
    }
    if (selected?.shown) {
      view.strokeStyle = color("--focus");
      view.lineWidth = 2;
      view.beginPath();
      view.arc(selected.x, selected.y, 11, 0, Math.PI * 2);
      view.stroke();
    }
  }

  function resize() {
    const box = canvas.getBoundingClientRect(), ratio = devicePixelRatio || 1;
    width = box.width;
    height = box.height;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    for (const dot of dots.values()) dot.x = undefined;
    arrange();
    paintDensity();
  }

  async function load() {
    const response = await fetch("/ui/space/data");
    if (!response.ok) return;
    const news = await response.json(), seen = new Set();
    for (const one of news.sprites) {
      seen.add(one.id);
      const dot = dots.get(one.id) ?? { id: one.id, phase: Math.random() * 7 };
      Object.assign(dot, { t: one.t, g: one.g, c: one.c, live: one.s, peer: one.peer });
      dots.set(one.id, dot);
    }
    for (const id of dots.keys()) if (!seen.has(id)) dots.delete(id);
    if (limitNote.hidden === news.cut) { limitNote.hidden = !news.cut; resize(); } // the note takes space from the canvas
    applyTime();
  }
  async function loadDay() {
    const response = await fetch("/ui/space/day");
    if (!response.ok) return;
    const day = await response.json();
    const timelines = day.sessions.map(() => []);
    for (const [place, second, state] of day.changes) timelines[place].push([second, state]);
    history = { begin: day.begin, known: day.known, timelines: new Map(day.sessions.map((id, place) => [id, timelines[place]])), changes: day.changes, at: Date.now() };
    paintDensity();
  }
  function stateAt(dot, second) {
    const changes = history?.timelines.get(dot.id);
    if (!changes) return dot.peer ? dot.live : null;
    if (history.begin + second < dot.c) return null;
    let low = 0, high = changes.length;
    while (low < high) { const middle = (low + high) >> 1; if (changes[middle][0] <= second) low = middle + 1; else high = middle; }
    return low ? changes[low - 1][1] : null;
  }
  function applyTime() {
    let shape = "";
    for (const dot of dots.values()) {
      const state = scrubbedTo === null ? dot.live : stateAt(dot, scrubbedTo);
      dot.shown = state !== null;
      dot.state = state ?? 0;
      shape += dot.shown ? `${dot.state}${dot.id}${dot.g} ` : "";
    }
    if (shape !== applyTime.shape) arrange();
    applyTime.shape = shape;
    const counts = new Map();
    for (const dot of dots.values()) if (dot.shown) counts.set(dot.state, (counts.get(dot.state) ?? 0) + 1);
    canvas.setAttribute("aria-label", "Sessions of the last 24 hours: " + ([...counts].sort().map(([state, n]) => `${n} ${NAMES[state]}`).join(", ") || "none"));
    canvas.dataset.count = String([...dots.values()].filter((dot) => dot.shown).length);
    empty.hidden = counts.size > 0;
    empty.firstElementChild.textContent = scrubbedTo === null ? "No sessions in the last 24 hours" : "No sessions at this time";
  }
  function paintDensity() {
    const box = density.getBoundingClientRect(), ratio = devicePixelRatio || 1;
    density.width = box.width * ratio;
    density.height = box.height * ratio;
    if (!history) return;
    const layer = density.getContext("2d"), bins = new Array(96).fill(0);
    // Initial states are not changes.
    for (const [, second] of history.changes) if (second !== history.known) bins[Math.min(95, Math.max(0, Math.floor(second / 900)))]++;
    const most = Math.max(...bins, 1), wide = density.width / 96;
    layer.fillStyle = color("--accent");
    layer.globalAlpha = 0.5;
    bins.forEach((n, place) => { const tall = n ? Math.max(2, Math.sqrt(n / most) * density.height) : 0; layer.fillRect(place * wide + 1, density.height - tall, wide - 2, tall); });
  }

  scrub.addEventListener("input", async () => {
    scrubbedTo = Number(scrub.value) >= DAY ? null : Number(scrub.value);
    nowButton.disabled = scrubbedTo === null;
    if (scrubbedTo !== null && (!history || Date.now() - history.at > 60000)) await loadDay();
    clock.textContent = scrubbedTo === null ? "now" : new Date((history.begin + scrubbedTo) * 1000).toLocaleString([], { weekday: "short", hour: "2-digit", minute: "2-digit" });
    scrub.setAttribute("aria-valuetext", clock.textContent);
    applyTime();
  });
  nowButton.addEventListener("click", () => { scrub.value = DAY; scrub.dispatchEvent(new Event("input")); scrub.focus(); });

  function nearest(x, y) {
    let best = null, far = 16;
    for (const dot of dots.values()) if (dot.shown) { const d = Math.hypot(dot.x - x, dot.y - y); if (d < far) { best = dot; far = d; } }
    return best;
  }
  function select(dot) {
    selected = dot;
    stale = stale || reducedMotion.matches;
    canvas.classList.toggle("hovering", Boolean(dot));
    tooltip.hidden = !dot;
    if (!dot) return;
    tooltip.textContent = `${dot.t} · ${NAMES[dot.state]}`;
    tooltip.style.translate = `${Math.min(dot.x + 14, width - tooltip.offsetWidth - 8)}px ${Math.min(dot.y + 14, height - 40)}px`;
  }
  const open = (dot) => { if (dot && !dot.peer) location.href = `/ui/s/${encodeURIComponent(dot.id)}`; else if (dot) location.href = "/ui/fleet"; };
  canvas.addEventListener("pointermove", (event) => select(nearest(event.offsetX, event.offsetY)));
  canvas.addEventListener("pointerleave", () => select(null));
  canvas.addEventListener("click", (event) => open(nearest(event.offsetX, event.offsetY)));
  canvas.addEventListener("keydown", (event) => {
    const order = groups.flatMap((group) => group.members), here = order.indexOf(selected);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step && order.length) { event.preventDefault(); const dot = order[(here + step + order.length) % order.length]; select(dot); status.textContent = `${dot.t}, ${NAMES[dot.state]}`; }
    if (event.key === "Enter") open(selected);
  });

  let due = 0;
  document.addEventListener("store-changed", () => { clearTimeout(due); due = setTimeout(load, 300); });
  document.addEventListener("theme-changed", () => { makeSprites(); stale = true; paintDensity(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { makeSprites(); stale = true; });
  addEventListener("resize", resize);
  makeSprites();
  resize();
  Promise.all([load(), loadDay()]).then(() => { canvas.dataset.ready = ""; });
  requestAnimationFrame(frame);
})();
