// A session's page while it lives: items come in place, words as they are written, and the page stays at its end.
"use strict";
(() => {
  const page = document.querySelector(".session"), log = document.querySelector("#log");
  const draft = document.querySelector("#draft"), thinking = document.querySelector("#thinking");
  if (!page) return;
  const words = draft.querySelector(".text");
  let last = Number(page.dataset.last), text = "";

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
  }

  const hear = {
    items: (event) => keepingPlace(() => {
      const seq = Number(event.lastEventId);
      if (seq <= last) return;
      last = seq;
      JSON.parse(event.data).forEach(put);
    }),
    draft: (event) => keepingPlace(() => {
      const news = JSON.parse(event.data);
      text = news.from === 0 ? news.text : text + news.text;
      words.textContent = text;
      draft.hidden = !text;
      thinking.hidden = Boolean(text) || page.dataset.state !== "running";
    }),
    head: (event) => keepingPlace(() => {
      const news = JSON.parse(event.data), fresh = element(news.html);
      document.getElementById("head").replaceWith(fresh);
      htmx.process(fresh);
      holdfast.age(fresh);
      showState(news.state);
      if (news.title) document.title = `${news.title} · Holdfast`;
    }),
    notice: (event) => document.getElementById("notices").append(element(JSON.parse(event.data))),
    reload: () => location.reload(),
  };

  showState(page.dataset.state);
  if (page.dataset.past === undefined) {
    holdfast.stream(() => { text = ""; return `/ui/s/${page.dataset.session}/live?after=${last}`; }, hear);
    if (!location.hash) toEnd();
  }

  const composer = document.querySelector("#composer"), box = document.querySelector("#words"), key = document.querySelector("#say-key");
  if (composer) {
    // The same key goes with every attempt to send the same words, so that they are said once.
    const renew = () => { key.value = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`; };
    renew();
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); composer.requestSubmit(); }
    });
    document.addEventListener("htmx:after:request", (event) => {
      if (event.target !== composer || !event.detail.ctx.response?.raw?.ok) return;
      box.value = "";
      renew();
      toEnd();
    });
  }
})();
