// Shared by every page: the CSRF token, live updates, relative times, keyboard shortcuts, confirmations and notices.
"use strict";
(() => {
  const token = document.querySelector('meta[name="csrf"]')?.content ?? "";
  const $ = (selector, root = document) => root.querySelector(selector);

  // Every POST carries the CSRF token, which a page of another site cannot know.
  document.addEventListener("htmx:config:request", (event) => {
    event.detail.ctx.request.headers["X-CSRF-Token"] = token;
  });
  const fillTokens = (root) => root.querySelectorAll("input[data-csrf]").forEach((input) => { input.value = token; });
  fillTokens(document);

  // Live updates come over one stream that all pages of this browser share; a hidden page releases it.
  function openStream(onUpdate) {
    let name = "";
    try {
      if (typeof SharedWorker === "function") {
        const { port } = new SharedWorker($('script[src*="/shared_stream.js"]').src, "holdfast");
        port.onmessage = ({ data }) => onUpdate(data);
        return { want: (wants) => port.postMessage(wants), leave: () => port.postMessage({ leave: true }) };
      }
    } catch (error) { name = error.name; } // some browsers define SharedWorker and refuse to create one
    const ownStream = new SharedStream(), page = { postMessage: onUpdate, name };
    return { want: (wants) => ownStream.want(page, wants), leave: () => ownStream.leave(page) };
  }
  function subscribe(wants, listeners) {
    const link = $("#connection");
    if (link) link.lastElementChild.textContent = "Connecting";
    const showConnection = (on) => {
      if (!link) return;
      if (!on) link.ariaLive = "polite"; // announce only a lost and a restored connection
      link.classList.remove("pending");
      link.classList.toggle("offline", !on);
      link.lastElementChild.textContent = on ? "Live" : "Reconnecting";
    };
    const subscription = openStream((update) => {
      if (document.hidden) return;
      if (update.out) location.href = "/ui/login?next=" + encodeURIComponent(location.pathname + location.search);
      else if ("on" in update) showConnection(update.on);
      else listeners[update.name]?.(update.data, update.seq);
    });
    const open = () => document.hidden || subscription.want(wants());
    document.addEventListener("visibilitychange", () => (document.hidden ? subscription.leave() : open()));
    addEventListener("pagehide", subscription.leave);
    addEventListener("pageshow", (event) => event.persisted && open());
    setInterval(open, 30000);
    open();
  }

  // Parts of the page that are reloaded when the store has changed, but not while the user is typing in them.
  let due = 0, last = 0;
  const busy = (part) => part.contains(document.activeElement) && document.activeElement.matches("input:not([type=checkbox]), textarea, select")
    || part.querySelector(".pick-row :checked")
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
    // The first position counts too: the store may have changed since the page was rendered.
    subscribe(() => ({}), { pulse: (position) => { if (position !== known) { known = position; refresh(); } } });
    setInterval(() => document.hidden || $("#counts") && htmx.trigger($("#counts"), "refresh"), 20000);
    const every = Number(document.body.dataset.every || 0);
    if (every) setInterval(() => document.hidden || refresh(), 1000 * every);
  }

  // Relative times.
  const units = [[172800, 86400, "d"], [7200, 3600, "h"], [120, 60, "min"]];
  function ago(seconds) {
    for (const [from, size, name] of units) if (seconds >= from) return `${Math.round(seconds / size)} ${name} ago`;
    return seconds < 5 ? "just now" : `${Math.round(seconds)} s ago`;
  }
  const updateAges = (root) => root.querySelectorAll("time[data-ago]").forEach((time) => {
    const text = ago(Math.max(0, (Date.now() - Date.parse(time.dateTime)) / 1000));
    if (time.textContent !== text) time.textContent = text;
  });
  const showLocalTimes = (root) => root.querySelectorAll("time[data-local]").forEach((time) => {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) return; // another server may send anything here
    const today = at.toDateString() === new Date().toDateString();
    time.textContent = at.toLocaleString([], today ? { hour: "2-digit", minute: "2-digit" } : { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
    time.removeAttribute("data-local");
  });
  showLocalTimes(document);
  document.addEventListener("htmx:after:swap", () => showLocalTimes(document));
  setInterval(() => document.hidden || updateAges(document), 10000);

  // Notices disappear by themselves, unless they report an error.
  const notices = $("#notices");
  new MutationObserver((changes) => changes.forEach((change) => change.addedNodes.forEach((node) => {
    if (node.nodeType === 1 && !node.classList.contains("bad")) setTimeout(() => node.remove(), 5000);
  }))).observe(notices, { childList: true });
  document.addEventListener("click", (event) => event.target.closest("[data-dismiss]")?.parentElement.remove());
  function notice(text) {
    const box = document.createElement("div"), paragraph = document.createElement("p");
    box.className = "notice bad";
    paragraph.textContent = text;
    box.append(paragraph);
    notices.append(box);
    setTimeout(() => box.remove(), 8000);
  }
  document.addEventListener("htmx:error", (event) => {
    // A failed GET is repeated by the next refresh; after a failed POST the result is unknown.
    if (event.detail.ctx?.request?.method === "POST") notice("No response from the server. Check the result once it is back.");
  });

  // Ask for confirmation before actions that are hard to undo.
  let confirmed = null;
  document.addEventListener("submit", (event) => {
    const form = event.target, question = event.submitter?.dataset.confirm ?? form.dataset.confirm;
    if (!question || confirmed === form) { confirmed = null; return; }
    event.preventDefault();
    event.stopImmediatePropagation();
    const dialog = $("#confirm"), button = event.submitter;
    $("#confirm-text").textContent = question;
    dialog.onclose = () => { if (dialog.returnValue === "yes") { confirmed = form; form.requestSubmit(button); } dialog.returnValue = ""; };
    dialog.showModal();
  }, true);

  // Selected sessions of the list.
  const bulk = $("#bulk"), picks = () => [...document.querySelectorAll(".pick-row input")];
  function showPicked() {
    const picked = picks().filter((one) => one.checked), all = $("#pick-all");
    $("#bulk-count").textContent = `${picked.length} selected`;
    if (all) { all.checked = picked.length > 0 && picked.length === picks().length; all.indeterminate = picked.length > 0 && !all.checked; }
  }
  if (bulk) {
    document.addEventListener("change", (event) => {
      if (event.target.id === "pick-all") picks().forEach((one) => { one.checked = event.target.checked; });
      if (event.target.closest(".pick-row, .pick-all")) showPicked();
    });
    bulk.addEventListener("reset", () => setTimeout(() => { picks().forEach((one) => { one.checked = false; }); showPicked(); refresh(); }));
    addEventListener("pageshow", showPicked);
  }

  $("#theme")?.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* storage may be disabled */ }
    document.dispatchEvent(new Event("theme-changed"));
  });
  // On a phone the menu shows some of the pages and a link that opens the others; without scripts the link leads to them.
  const sidebar = $(".sidebar"), more = $("[data-more]");
  function showPages(open) {
    sidebar.classList.toggle("open", open);
    more.lastElementChild.textContent = open ? "Close" : "More";
  }
  document.addEventListener("click", (event) => {
    if (!more) return;
    if (event.target.closest("[data-more]")) { event.preventDefault(); showPages(!sidebar.classList.contains("open")); }
    else if (!event.target.closest(".sidebar")) showPages(false);
  });

  // On a narrow screen the actions of a session are a sheet; without scripts its link leads to it.
  const sheet = $("#session-actions");
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-sheet]");
    if (!sheet || !button) return;
    event.preventDefault();
    sheet.classList.toggle("open", button.classList.contains("sheet-button"));
    (sheet.classList.contains("open") ? sheet.querySelector("[data-sheet]") : $(".sheet-button"))?.focus();
  });

  // Copy buttons of code blocks.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    event.preventDefault();
    const code = button.closest(".code").querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch { // the clipboard needs HTTPS or this machine
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });

  // Keyboard shortcuts.
  let awaitsPageKey = false;
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && event.target.matches("input, textarea")) { event.target.blur(); return; }
    if (event.key === "Escape" && sheet?.classList.contains("open")) { sheet.classList.remove("open"); $(".sheet-button")?.focus(); return; }
    if (event.key === "Escape" && sidebar?.classList.contains("open")) { showPages(false); more.focus(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]), textarea, select")) return;
    if (awaitsPageKey) {
      awaitsPageKey = false;
      const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    const rows = [...document.querySelectorAll(".row .title, .record h2 a, .lines li a, #log .item > header > .timestamp, #log .item > summary")];
    const focused = rows.indexOf(document.activeElement);
    const focus = (element) => { if (element) { event.preventDefault(); element.focus(); element.scrollIntoView({ block: "nearest" }); } };
    switch (event.key) {
      case "/": focus($('input[type="search"]')); break;
      case "n": focus($("#message-text") || $("#new-message")); break;
      case "a": {
        const allow = $('.question.q-open [value="allow"], .answers [value="allow"]');
        if (allow) focus(allow); else if (badge && !badge.hidden) location.href = "/ui/questions";
        break;
      }
      case "i": { const button = $("#interrupt-button"); if (button?.offsetParent) { event.preventDefault(); button.click(); } break; }
      case "j": focus(rows[focused + 1] ?? rows[focused]); break;
      case "k": focus(rows[Math.max(focused - 1, 0)]); break;
      case "g": awaitsPageKey = true; setTimeout(() => { awaitsPageKey = false; }, 1200); break;
      case "x": { const box = rows[focused]?.closest(".row")?.querySelector(".pick-row input"); if (box) { event.preventDefault(); box.click(); } break; }
      case "?": event.preventDefault(); $("#help").showModal(); break;
    }
  });

  // The number of open questions: in the menu, and in the title, which stays visible when another tab is open.
  const badge = $("#question-count");
  async function showQuestionCount() {
    const response = await fetch("/ui/questions/count", { headers: { "hx-request": "true" } }).catch(() => null);
    if (!response || !response.ok) return; // the connection status in the menu reports it
    const { open } = await response.json();
    badge.hidden = !open;
    badge.textContent = open || "";
    badge.setAttribute("aria-label", `${open} open`);
    document.title = (open ? `(${open}) ` : "") + document.title.replace(/^\(\d+\) /, "");
  }
  if (badge) {
    showQuestionCount();
    setInterval(showQuestionCount, 4000);
    document.body.addEventListener("changed", showQuestionCount);
  }

  window.holdfast = { subscribe, updateAges, fillTokens, showLocalTimes };
})();
