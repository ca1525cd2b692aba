// Live updates of a session's page: inserts or replaces items, appends to the reply in progress, and keeps the page scrolled to its end.
"use strict";
(() => {
  const page = document.querySelector(".session"), log = document.querySelector("#log");
  const draft = document.querySelector("#draft"), thinking = document.querySelector("#thinking");
  if (!page) return;
  const draftText = draft.querySelector(".text");
  let last = Number(page.dataset.last), text = "", asking = page.dataset.asking !== undefined, due = 0;

  const isAtEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 160;
  const scrollToEnd = () => scrollTo({ top: document.documentElement.scrollHeight });
  function keepScrollPosition(change) {
    const follow = isAtEnd();
    change();
    if (follow) scrollToEnd();
  }
  function parse(html) {
    const holder = document.createElement("template");
    holder.innerHTML = html.trim();
    return holder.content.firstElementChild;
  }
  function putItem({ id, html }) {
    const fresh = parse(html), old = document.getElementById(id);
    if (!fresh) return;
    if (old && old.open && "open" in fresh && !("auto" in old.dataset)) fresh.open = true;
    if (old) old.replaceWith(fresh); else log.insertBefore(fresh, draft);
    holdfast.fillTokens(fresh);
    holdfast.showLocalTimes(fresh);
    htmx.process(fresh);
  }
  // What a running command has written so far; its result replaces this.
  function showOutput({ id, text }) {
    const card = document.getElementById(id), body = card?.querySelector(".details-body");
    if (!body || !card.classList.contains("o-running")) return;
    let box = body.querySelector(".live-output");
    if (!box) {
      const title = document.createElement("h3");
      title.textContent = "Output so far";
      box = document.createElement("pre");
      box.className = "live-output";
      box.tabIndex = 0;
      body.append(title, box);
      if (!card.open) { card.dataset.auto = ""; card.open = true; }
    }
    box.textContent = text;
    box.scrollTop = box.scrollHeight;
  }
  function showState(state) {
    page.dataset.state = state;
    thinking.hidden = state !== "running" || !draft.hidden;
    thinking.lastElementChild.textContent = asking ? "waiting for your answer" : "working";
  }

  // The actions that are available now; keeps the focus.
  function showActions(html) {
    const old = document.getElementById("actions"), fresh = parse(html);
    if (!old || old.dataset.actions === fresh.dataset.actions) return;
    const label = old.contains(document.activeElement) ? document.activeElement.textContent : "";
    old.replaceWith(fresh);
    holdfast.fillTokens(fresh);
    htmx.process(fresh);
    if (label) ([...fresh.querySelectorAll("button")].find((one) => one.textContent === label) ?? fresh.querySelector("button"))?.focus();
  }

  const handlers = {
    items: (items, seq) => keepScrollPosition(() => {
      if (seq <= last) return;
      last = seq;
      items.forEach(putItem);
    }),
    output: (update) => keepScrollPosition(() => showOutput(update)),
    draft: (update) => keepScrollPosition(() => {
      text = update.from === 0 ? update.text : text + update.text;
      draftText.textContent = text;
      draft.hidden = !text;
      thinking.hidden = Boolean(text) || page.dataset.state !== "running";
    }),
    head: (update) => keepScrollPosition(() => {
      const fresh = parse(update.html);
      document.getElementById("head").replaceWith(fresh);
      htmx.process(fresh);
      holdfast.updateAges(fresh);
      document.getElementById("queued")?.replaceWith(parse(update.queued));
      showActions(update.deeds);
      asking = update.asking;
      showState(update.state);
      if (document.getElementById("explanation").open) { clearTimeout(due); due = setTimeout(() => htmx.trigger("#explanation", "refresh"), 1500); }
      if (update.title) document.title = `${/^\(\d+\) |/.exec(document.title)[0]}${update.title} · Holdfast`; // keeps the number of open questions
    }),
    notice: (html) => document.getElementById("notices").append(parse(html)),
    reload: () => location.reload(),
    gone: () => location.reload(),
  };

  showState(page.dataset.state);
  if (page.dataset.past === undefined) {
    holdfast.subscribe(() => ({ session: page.dataset.session, after: last }), handlers);
    if (!location.hash) scrollToEnd();
  }

  const composer = document.querySelector("#composer"), box = document.querySelector("#message-text"), key = document.querySelector("#message-key");
  if (composer) {
    // Every attempt to send the same message has the same idempotency key, so that it is accepted once.
    const renewKey = () => { key.value = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`; };
    renewKey();
    // An unsent message survives a reload.
    const storageKey = `words of ${page.dataset.session}`;
    const saveUnsent = () => { try { if (box.value) sessionStorage.setItem(storageKey, box.value); else sessionStorage.removeItem(storageKey); } catch { /* storage may be disabled */ } };
    try { box.value ||= sessionStorage.getItem(storageKey) ?? ""; } catch { /* storage may be disabled */ }
    box.addEventListener("input", saveUnsent);
    let sent = "";
    composer.addEventListener("submit", () => { if (sent && sent !== box.value) renewKey(); sent = box.value; }, true);
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); composer.requestSubmit(); }
    });
    document.addEventListener("htmx:after:request", (event) => {
      if (event.target !== composer || !event.detail.ctx.response?.raw?.ok) return;
      if (box.value === sent) box.value = "";
      saveUnsent();
      sent = "";
      renewKey();
      scrollToEnd();
    });
  }
})();
