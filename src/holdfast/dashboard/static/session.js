// A session's page while it lives: items come in place, words as they are written, and the page stays at its end.
"use strict";
(() => {
  const page = document.querySelector(".session"), log = document.querySelector("#log");
  const draft = document.querySelector("#draft"), thinking = document.querySelector("#thinking");
  if (!page) return;
  const words = draft.querySelector(".text");
  let last = Number(page.dataset.last), text = "", asking = page.dataset.asking !== undefined, due = 0;

  const isAtEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 160;
  const toEnd = () => scrollTo({ top: document.documentElement.scrollHeight });
  function keepingPlace(change) {
    const follow = isAtEnd();
    change();
    if (follow) toEnd();
  }
  function element(html) {
    const holder = document.createElement("template");
    holder.innerHTML = html.trim();
    return holder.content.firstElementChild;
  }
  function put({ id, html }) {
    const fresh = element(html), old = document.getElementById(id);
    if (!fresh) return;
    if (old && old.open && "open" in fresh) fresh.open = true;
    if (old) old.replaceWith(fresh); else log.insertBefore(fresh, draft);
    holdfast.fill(fresh);
    holdfast.local(fresh);
    htmx.process(fresh);
  }
  function showState(state) {
    page.dataset.state = state;
    thinking.hidden = state !== "running" || !draft.hidden;
    thinking.lastElementChild.textContent = asking ? "waits for your answer" : "at work";
  }

  // Deeds that make sense now; not changed under the fingers of somebody.
  function showDeeds(html) {
    const old = document.getElementById("deeds"), fresh = element(html);
    if (!old || old.dataset.deeds === fresh.dataset.deeds) return;
    const label = old.contains(document.activeElement) ? document.activeElement.textContent : "";
    old.replaceWith(fresh);
    holdfast.fill(fresh);
    htmx.process(fresh);
    if (label) ([...fresh.querySelectorAll("button")].find((one) => one.textContent === label) ?? fresh.querySelector("button"))?.focus();
  }

  const hear = {
    items: (items, seq) => keepingPlace(() => {
      if (seq <= last) return;
      last = seq;
      items.forEach(put);
    }),
    draft: (news) => keepingPlace(() => {
      text = news.from === 0 ? news.text : text + news.text;
      words.textContent = text;
      draft.hidden = !text;
      thinking.hidden = Boolean(text) || page.dataset.state !== "running";
    }),
    head: (news) => keepingPlace(() => {
      const fresh = element(news.html);
      document.getElementById("head").replaceWith(fresh);
      htmx.process(fresh);
      holdfast.age(fresh);
      showDeeds(news.deeds);
      asking = news.asking;
      showState(news.state);
      if (document.getElementById("why").open) { clearTimeout(due); due = setTimeout(() => htmx.trigger("#why", "refresh"), 1500); }
      if (news.title) document.title = `${news.title} · Holdfast`;
    }),
    notice: (html) => document.getElementById("notices").append(element(html)),
    reload: () => location.reload(),
    gone: () => location.reload(),
  };

  showState(page.dataset.state);
  if (page.dataset.past === undefined) {
    holdfast.stream(() => ({ session: page.dataset.session, after: last }), hear);
    if (!location.hash) toEnd();
  }

  const composer = document.querySelector("#composer"), box = document.querySelector("#words"), key = document.querySelector("#say-key");
  if (composer) {
    // The same key goes with every attempt to send the same words, so that they are said once.
    const renew = () => { key.value = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`; };
    renew();
    // Words that are not sent yet outlive a reload.
    const place = `words of ${page.dataset.session}`;
    const keep = () => { try { if (box.value) sessionStorage.setItem(place, box.value); else sessionStorage.removeItem(place); } catch { /* storage may be turned off */ } };
    try { box.value ||= sessionStorage.getItem(place) ?? ""; } catch { /* storage may be turned off */ }
    box.addEventListener("input", keep);
    let sent = "";
    composer.addEventListener("submit", () => { if (sent && sent !== box.value) renew(); sent = box.value; }, true);
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); composer.requestSubmit(); }
    });
    document.addEventListener("htmx:after:request", (event) => {
      if (event.target !== composer || !event.detail.ctx.response?.raw?.ok) return;
      if (box.value === sent) box.value = "";
      keep();
      sent = "";
      renew();
      toEnd();
    });
  }
})();
