// Space: every session a small body, at home with its worker or its gateway, moving with what it does.
// Bodies that rest are painted once onto a layer of their own; only those that move are drawn again, some twenty times a second.
"use strict";
(() => {
  const canvas = document.getElementById("sky"), pen = canvas.getContext("2d");
  const tip = document.getElementById("tip"), scrub = document.getElementById("scrub"), clock = document.getElementById("clock");
  const nowButton = document.getElementById("now"), density = document.getElementById("density"), spoken = document.getElementById("sky-words"), empty = document.getElementById("sky-empty"), cut = document.getElementById("sky-cut");
  const NAMES = ["waiting", "thinking", "running a tool", "asking", "interrupted", "in quarantine", "ended", "reaped"];
  const COLORS = ["--wait", "--run", "#3b82c4", "--ask", "--halt", "--bad", "--end", "--bad"];
  const MOVES = [false, true, true, true, false, false, false, false];
  const FRAME = 50, DAY = 86400, still = matchMedia("(prefers-reduced-motion: reduce)");
  let bodies = new Map(), groups = [], stamps = [], background = null, scale = 1, width = 0, height = 0;
  let past = null, history = null, chosen = null, stale = true;

  const color = (name) => (name[0] === "-" ? getComputedStyle(document.documentElement).getPropertyValue(name).trim() : name);
  function stamp(fill, radius, glow) {
    const size = Math.ceil((radius + glow) * 2 + 2), one = document.createElement("canvas"), ratio = devicePixelRatio || 1;
    one.width = one.height = size * ratio;
    const ink = one.getContext("2d");
    ink.scale(ratio, ratio);
    const middle = size / 2;
    if (glow) {
      const halo = ink.createRadialGradient(middle, middle, radius * 0.6, middle, middle, radius + glow);
      halo.addColorStop(0, `color-mix(in srgb, ${fill} 45%, transparent)`);
      halo.addColorStop(1, `color-mix(in srgb, ${fill} 1%, transparent)`);
      ink.fillStyle = halo;
      ink.fillRect(0, 0, size, size);
    }
    ink.fillStyle = fill;
    ink.beginPath();
    ink.arc(middle, middle, radius, 0, Math.PI * 2);
    ink.fill();
    return { one, size };
  }
  function makeStamps() {
    stamps = COLORS.map((name, state) => {
      const fill = color(name);
      return state >= 6 ? stamp(`color-mix(in srgb, ${fill} ${state === 7 ? 70 : 45}%, transparent)`, 3, 0) : MOVES[state] ? stamp(fill, 5, 9) : stamp(fill, 4.2, 0);
    });
  }

  // Each group is a disc of seeds, as in a sunflower: the busy in the middle. Discs are packed around the largest, wide or tall
  // as the sky is, and no name stands on another group. Whoever has a seat keeps it, and a disc has room to grow in: what is
  // left on a screen should not be shuffled by every word that is said.
  const GAP = 24, FONT = "560 12px Inter, sans-serif", NAME = 30;
  const meet = (a, b) => Math.abs(a.x - b.x) < a.w + b.w && Math.abs(a.y - b.y) < a.h + b.h;
  const label = (group) => ({ x: group.x, y: group.y + group.radius + 12 / scale, w: group.half / scale, h: 14 / scale });
  const covers = (disc, name) => Math.hypot(Math.max(Math.abs(name.x - disc.x) - name.w, 0), Math.max(Math.abs(name.y - disc.y) - name.h, 0)) < disc.radius;
  const clash = (a, b) => Math.hypot(a.x - b.x, a.y - b.y) < a.radius + b.radius + GAP
    || meet(label(a), label(b)) || covers(b, label(a)) || covers(a, label(b));
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
  const seats = new Map(), rooms = new Map();
  const isBusy = (body) => MOVES[body.state] || body.state === 4 || body.state === 5;
  const rank = (body) => (isBusy(body) ? 0 : body.state === 0 ? 1 : 2);
  function seat(name, members) {
    const wanted = new Set(members), places = (seats.get(name) ?? []).map((body) => (wanted.delete(body) ? body : null));
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
    seats.set(name, places);
    return places;
  }
  function room(name, count) {
    const had = rooms.get(name) ?? 0;
    if (count > had || count < had / 2) rooms.set(name, Math.ceil(count * 1.2) + 1);
    return rooms.get(name);
  }
  let packed = "";
  function arrange() {
    const byGroup = new Map();
    for (const body of bodies.values()) if (body.shown) (byGroup.get(body.g) ?? byGroup.set(body.g, []).get(body.g)).push(body);
    pen.font = FONT;
    const before = new Map(groups.map((group) => [group.name, group]));
    groups = [...byGroup].map(([name, all]) => {
      const members = seat(name, all), words = `${name.length > NAME ? name.slice(0, NAME - 1) + "…" : name}  ${members.length}`;
      const half = Math.ceil(pen.measureText(words).width / 20) * 10 + 10, { x, y, sx, sy } = before.get(name) ?? {};
      return { name, words, members, half, radius: 15 * Math.sqrt(room(name, members.length)) * 0.62 + 16, x, y, sx, sy };
    }).sort((a, b) => b.radius - a.radius || (a.name < b.name ? -1 : 1));
    stale = true;
    if (!width || !groups.length) return;
    const shape = JSON.stringify([width, height, ...groups.map(({ name, radius, half }) => [name, radius, half])]);
    if (shape !== packed) {
      packed = shape;
      scale = 1;
      pack();
      pack(); // names have a size of their own: the second time it is known how large that is beside the discs
    }
    for (const group of groups) {
      group.members.forEach((body, n) => {
        const far = 15 * 0.62 * Math.sqrt(n + 0.5) * scale, angle = n * 2.399963;
        body.tx = group.sx + Math.cos(angle) * far;
        body.ty = group.sy + Math.sin(angle) * far;
        if (body.x === undefined) { body.x = body.tx; body.y = body.ty; }
      });
    }
  }

  function paintBackground() {
    const ratio = devicePixelRatio || 1;
    background = document.createElement("canvas");
    background.width = canvas.width;
    background.height = canvas.height;
    const ink = background.getContext("2d");
    ink.scale(ratio, ratio);
    ink.fillStyle = color("--sunken");
    ink.fillRect(0, 0, width, height);
    ink.textAlign = "center";
    for (const group of groups) {
      const radius = group.radius * scale;
      ink.beginPath();
      ink.arc(group.sx, group.sy, radius, 0, Math.PI * 2);
      const water = ink.createRadialGradient(group.sx, group.sy, radius * 0.1, group.sx, group.sy, radius);
      water.addColorStop(0, `color-mix(in srgb, ${color("--accent")} 13%, ${color("--card")})`);
      water.addColorStop(1, color("--card"));
      ink.fillStyle = water;
      ink.fill();
      ink.strokeStyle = color("--line-strong");
      ink.lineWidth = 1;
      ink.stroke();
      ink.font = FONT;
      ink.fillStyle = color("--soft");
      ink.fillText(group.words, group.sx, group.sy + radius + 16);
    }
    for (const body of bodies.values()) if (body.shown && !moves(body) && !travels(body)) draw(ink, body, body.x, body.y, 1);
    stale = false;
  }
  // On its way to another place: drawn with those that move, so that the rest need not be painted again.
  const travels = (body) => Math.abs(body.tx - body.x) + Math.abs(body.ty - body.y) > 0.5;
  const moves = (body) => MOVES[body.state] && !still.matches;
  function draw(ink, body, x, y, zoom) {
    const { size, one } = stamps[body.state], wide = size * zoom * Math.min(Math.max(scale, 0.45), 1.6);
    ink.drawImage(one, x - wide / 2, y - wide / 2, wide, wide);
  }

  let painted = 0;
  function frame(at) {
    requestAnimationFrame(frame);
    if (document.hidden || at - painted < FRAME || !width) return;
    painted = at;
    let under = false;
    for (const body of bodies.values()) {
      if (!body.shown || !travels(body)) continue;
      under = true;
      body.x += (body.tx - body.x) * 0.2;
      body.y += (body.ty - body.y) * 0.2;
      if (!travels(body) || still.matches) { body.x = body.tx; body.y = body.ty; stale = true; }
    }
    if (stale) paintBackground();
    else if (still.matches && !under) return;
    const ratio = devicePixelRatio || 1;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.drawImage(background, 0, 0);
    pen.scale(ratio, ratio);
    for (const body of bodies.values()) {
      if (!body.shown || !(moves(body) || travels(body))) continue;
      if (!moves(body)) { draw(pen, body, body.x, body.y, 1); continue; }
      const beat = at / 1000 + body.phase;
      const sway = body.state === 3 ? [0, -Math.abs(Math.sin(beat * 2.4)) * 5] : [Math.cos(beat * 0.9) * 2.2, Math.sin(beat * 1.2) * 2.2];
      draw(pen, body, body.x + sway[0] * scale, body.y + sway[1] * scale, body.state === 1 ? 1 + 0.16 * Math.sin(beat * 3) : 1);
      if (body.state === 2) {
        pen.strokeStyle = "#3b82c4";
        pen.lineWidth = 1.6;
        pen.beginPath();
        pen.arc(body.x + sway[0] * scale, body.y + sway[1] * scale, 8.5 * Math.min(scale, 1.3), beat * 3, beat * 3 + 2.1);
        pen.stroke();
      }
    }
    if (chosen?.shown) {
      pen.strokeStyle = color("--focus");
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(chosen.x, chosen.y, 11, 0, Math.PI * 2);
      pen.stroke();
    }
  }

  function resize() {
    const box = canvas.getBoundingClientRect(), ratio = devicePixelRatio || 1;
    width = box.width;
    height = box.height;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    for (const body of bodies.values()) body.x = undefined;
    arrange();
    paintDensity();
  }

  async function load() {
    const answer = await fetch("/ui/space/data");
    if (!answer.ok) return;
    const news = await answer.json(), seen = new Set();
    for (const one of news.sprites) {
      seen.add(one.id);
      const body = bodies.get(one.id) ?? { id: one.id, phase: Math.random() * 7 };
      Object.assign(body, { t: one.t, g: one.g, c: one.c, live: one.s, peer: one.peer });
      bodies.set(one.id, body);
    }
    for (const id of bodies.keys()) if (!seen.has(id)) bodies.delete(id);
    if (cut.hidden === news.cut) { cut.hidden = !news.cut; resize(); } // it takes room from the sky
    applyTime();
  }
  async function loadDay() {
    const answer = await fetch("/ui/space/day");
    if (!answer.ok) return;
    const day = await answer.json();
    const lives = day.sessions.map(() => []);
    for (const [place, second, state] of day.changes) lives[place].push([second, state]);
    history = { begin: day.begin, known: day.known, lives: new Map(day.sessions.map((id, place) => [id, lives[place]])), changes: day.changes, at: Date.now() };
    paintDensity();
  }
  function stateAt(body, second) {
    const life = history?.lives.get(body.id);
    if (!life) return body.peer ? body.live : null;
    if (history.begin + second < body.c) return null;
    let low = 0, high = life.length;
    while (low < high) { const middle = (low + high) >> 1; if (life[middle][0] <= second) low = middle + 1; else high = middle; }
    return low ? life[low - 1][1] : null;
  }
  function applyTime() {
    let shape = "";
    for (const body of bodies.values()) {
      const state = past === null ? body.live : stateAt(body, past);
      body.shown = state !== null;
      body.state = state ?? 0;
      shape += body.shown ? `${body.state}${body.id}${body.g} ` : "";
    }
    if (shape !== applyTime.shape) arrange();
    applyTime.shape = shape;
    const counts = new Map();
    for (const body of bodies.values()) if (body.shown) counts.set(body.state, (counts.get(body.state) ?? 0) + 1);
    canvas.setAttribute("aria-label", "Sessions of the last day: " + ([...counts].sort().map(([state, n]) => `${n} ${NAMES[state]}`).join(", ") || "none"));
    canvas.dataset.bodies = String([...bodies.values()].filter((body) => body.shown).length);
    empty.hidden = counts.size > 0;
    empty.firstElementChild.textContent = past === null ? "No session was used in the last day" : "No session was there then";
  }
  function paintDensity() {
    const box = density.getBoundingClientRect(), ratio = devicePixelRatio || 1;
    density.width = box.width * ratio;
    density.height = box.height * ratio;
    if (!history) return;
    const ink = density.getContext("2d"), bins = new Array(96).fill(0);
    // What was there already when it begins to be known is no change that anybody made.
    for (const [, second] of history.changes) if (second !== history.known) bins[Math.min(95, Math.max(0, Math.floor(second / 900)))]++;
    const most = Math.max(...bins, 1), wide = density.width / 96;
    ink.fillStyle = color("--accent");
    ink.globalAlpha = 0.5;
    bins.forEach((n, place) => { const tall = n ? Math.max(2, Math.sqrt(n / most) * density.height) : 0; ink.fillRect(place * wide + 1, density.height - tall, wide - 2, tall); });
  }

  scrub.addEventListener("input", async () => {
    past = Number(scrub.value) >= DAY ? null : Number(scrub.value);
    nowButton.disabled = past === null;
    if (past !== null && (!history || Date.now() - history.at > 60000)) await loadDay();
    clock.textContent = past === null ? "now" : new Date((history.begin + past) * 1000).toLocaleString([], { weekday: "short", hour: "2-digit", minute: "2-digit" });
    scrub.setAttribute("aria-valuetext", clock.textContent);
    applyTime();
  });
  nowButton.addEventListener("click", () => { scrub.value = DAY; scrub.dispatchEvent(new Event("input")); scrub.focus(); });

  function nearest(x, y) {
    let best = null, far = 16;
    for (const body of bodies.values()) if (body.shown) { const d = Math.hypot(body.x - x, body.y - y); if (d < far) { best = body; far = d; } }
    return best;
  }
  function point(body) {
    chosen = body;
    stale = stale || still.matches;
    canvas.classList.toggle("over", Boolean(body));
    tip.hidden = !body;
    if (!body) return;
    tip.textContent = `${body.t} · ${NAMES[body.state]}`;
    tip.style.translate = `${Math.min(body.x + 14, width - tip.offsetWidth - 8)}px ${Math.min(body.y + 14, height - 40)}px`;
  }
  const open = (body) => { if (body && !body.peer) location.href = `/ui/s/${encodeURIComponent(body.id)}`; else if (body) location.href = "/ui/fleet"; };
  canvas.addEventListener("pointermove", (event) => point(nearest(event.offsetX, event.offsetY)));
  canvas.addEventListener("pointerleave", () => point(null));
  canvas.addEventListener("click", (event) => open(nearest(event.offsetX, event.offsetY)));
  canvas.addEventListener("keydown", (event) => {
    const order = groups.flatMap((group) => group.members), here = order.indexOf(chosen);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step && order.length) { event.preventDefault(); const body = order[(here + step + order.length) % order.length]; point(body); spoken.textContent = `${body.t}, ${NAMES[body.state]}`; }
    if (event.key === "Enter") open(chosen);
  });

  let due = 0;
  document.addEventListener("store-changed", () => { clearTimeout(due); due = setTimeout(load, 300); });
  document.addEventListener("theme-changed", () => { makeStamps(); stale = true; paintDensity(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { makeStamps(); stale = true; });
  addEventListener("resize", resize);
  makeStamps();
  resize();
  Promise.all([load(), loadDay()]).then(() => { canvas.dataset.ready = ""; });
  requestAnimationFrame(frame);
})();
