// What every page shares: the token of changes, news of the store, times that grow older, keys, questions and notices.
"use strict";
(() => {
  const token = document.querySelector('meta[name="csrf"]')?.content ?? "";
  const $ = (selector, root = document) => root.querySelector(selector);

  // Every change carries the token that a page of a stranger cannot know.
  document.addEventListener("htmx:config:request", (event) => {
    event.detail.ctx.request.headers["X-CSRF-Token"] = token;
  });
  const fill = (root) => root.querySelectorAll("input[data-csrf]").forEach((input) => { input.value = token; });
  fill(document);

  // News of the server. They come over a wire that all pages of this browser share; a page that nobody sees lets go of it.
  function wire(hear) {
    let name = "";
    try {
      if (typeof SharedWorker === "function") {
        const { port } = new SharedWorker($('script[src*="/wire.js"]').src, "holdfast");
        port.onmessage = ({ data }) => hear(data);
        return { want: (wants) => port.postMessage(wants), leave: () => port.postMessage({ leave: true }) };
      }
    } catch (error) { name = error.name; } // some browsers have them and refuse to make one
    const own = new Wire(), page = { postMessage: hear, name };
    return { want: (wants) => own.want(page, wants), leave: () => own.leave(page) };
  }
  function stream(wants, listeners) {
    const link = $("#link");
    if (link) link.lastElementChild.textContent = "Connecting";
    const sign = (on) => {
      if (!link) return;
      if (!on) link.ariaLive = "polite"; // that it is there is no news; that it has gone is, and that it is back
      link.classList.remove("new");
      link.classList.toggle("off", !on);
      link.lastElementChild.textContent = on ? "Live" : "Reconnecting";
    };
    const line = wire((news) => {
      if (document.hidden) return;
      if (news.out) location.href = "/ui/login?next=" + encodeURIComponent(location.pathname + location.search);
      else if ("on" in news) sign(news.on);
      else listeners[news.name]?.(news.data, news.seq);
    });
    const open = () => document.hidden || line.want(wants());
    document.addEventListener("visibilitychange", () => (document.hidden ? line.leave() : open()));
    addEventListener("pagehide", line.leave);
    addEventListener("pageshow", (event) => event.persisted && open());
    setInterval(open, 30000);
    open();
  }

  // Parts of the page that are asked for anew when the store has changed; not while somebody is busy in them.
  let due = 0, last = 0;
  const busy = (part) => part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")
    || part.querySelector("#list .rows [data-paged]") || part.dataset.paged !== undefined;
  function refresh() {
    clearTimeout(due);
    due = setTimeout(() => {
      last = Date.now();
      document.querySelectorAll("[data-refresh]").forEach((part) => busy(part) || htmx.trigger(part, "refresh"));
      document.dispatchEvent(new Event("store-changed"));
    }, Math.max(0, 1500 - (Date.now() - last)));
  }
  document.addEventListener("htmx:before:request", (event) => {
    if (event.target.closest?.(".more")) $("#list")?.setAttribute("data-paged", "");
    if (event.target.id === "filters") $("#list")?.removeAttribute("data-paged");
  });
  document.addEventListener("changed", refresh);
  if ("pulse" in document.body.dataset) {
    let known = null;
    // The first one counts as well: something may have changed since the page was made.
    stream(() => ({}), { pulse: (position) => { if (position !== known) { known = position; refresh(); } } });
    setInterval(() => document.hidden || $("#census") && htmx.trigger($("#census"), "refresh"), 20000);
    const every = Number(document.body.dataset.every || 0);
    if (every) setInterval(() => document.hidden || refresh(), 1000 * every);
  }

  // Times grow older.
  const units = [[172800, 86400, "d"], [7200, 3600, "h"], [120, 60, "min"]];
  function ago(seconds) {
    for (const [from, size, name] of units) if (seconds >= from) return `${Math.round(seconds / size)} ${name} ago`;
    return seconds < 5 ? "just now" : `${Math.round(seconds)} s ago`;
  }
  const age = (root) => root.querySelectorAll("time[data-ago]").forEach((time) => {
    const words = ago(Math.max(0, (Date.now() - Date.parse(time.dateTime)) / 1000));
    if (time.textContent !== words) time.textContent = words;
  });
  const local = (root) => root.querySelectorAll("time[data-local]").forEach((time) => {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) return; // what another server calls a time
    const today = at.toDateString() === new Date().toDateString();
    time.textContent = at.toLocaleString([], today ? { hour: "2-digit", minute: "2-digit" } : { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
    time.removeAttribute("data-local");
  });
  local(document);
  document.addEventListener("htmx:after:swap", () => local(document));
  setInterval(() => document.hidden || age(document), 10000);

  // Notices go away by themselves, unless they are bad news.
  const notices = $("#notices");
  new MutationObserver((changes) => changes.forEach((change) => change.addedNodes.forEach((node) => {
    if (node.nodeType === 1 && !node.classList.contains("bad")) setTimeout(() => node.remove(), 5000);
  }))).observe(notices, { childList: true });
  document.addEventListener("click", (event) => event.target.closest("[data-dismiss]")?.parentElement.remove());
  function notice(words) {
    const box = document.createElement("div"), text = document.createElement("p");
    box.className = "notice bad";
    text.textContent = words;
    box.append(text);
    notices.append(box);
    setTimeout(() => box.remove(), 8000);
  }
  document.addEventListener("htmx:error", (event) => {
    // What was only looked at is looked at again; of what was to be changed nobody knows yet.
    if (event.detail.ctx?.request?.method === "POST") notice("The server did not answer. Whether it was done is seen when it is back.");
  });

  // What cannot be taken back at once is asked about first.
  let sure = null;
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.dataset.ask || sure === form) { sure = null; return; }
    event.preventDefault();
    event.stopImmediatePropagation();
    const ask = $("#ask"), button = event.submitter;
    $("#ask-words").textContent = form.dataset.ask;
    ask.onclose = () => { if (ask.returnValue === "yes") { sure = form; form.requestSubmit(button); } ask.returnValue = ""; };
    ask.showModal();
  }, true);

  $("#theme")?.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* storage may be turned off */ }
    document.dispatchEvent(new Event("theme-changed"));
  });
  // On a phone the menu is wider than the screen: the page where one is stands in the middle. Scrolling to it would move the focus there, too.
  const nav = $(".side nav"), here = $("nav a[aria-current]");
  if (nav && here) nav.scrollLeft = here.offsetLeft - nav.offsetLeft - (nav.clientWidth - here.offsetWidth) / 2;
  if (matchMedia("(max-width: 1180px)").matches) document.querySelectorAll("[data-narrow-closed]").forEach((one) => { one.open = false; });

  // Keys.
  let going = false;
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && event.target.matches("input, textarea")) { event.target.blur(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
    if (going) {
      going = false;
      const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    const rows = [...document.querySelectorAll(".row .title, .thing h2 a, .lines li a")];
    const here = rows.indexOf(document.activeElement);
    const focus = (element) => { if (element) { event.preventDefault(); element.focus(); element.scrollIntoView({ block: "nearest" }); } };
    switch (event.key) {
      case "/": focus($('input[type="search"]')); break;
      case "n": focus($("#words") || $("#begin")); break;
      case "j": focus(rows[here + 1] ?? rows[here]); break;
      case "k": focus(rows[Math.max(here - 1, 0)]); break;
      case "g": going = true; setTimeout(() => { going = false; }, 1200); break;
      case "?": event.preventDefault(); $("#help").showModal(); break;
    }
  });

  window.holdfast = { stream, age, fill, local, notice };
})();
