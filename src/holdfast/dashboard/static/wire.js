// One stream for all the pages of a browser: it opens few connections to one server, however many windows there are.
// This runs in a worker that the pages share; where there is none, each page has a wire of its own.
"use strict";
class Wire {
  #pages = new Map(); // who wants what, and when they were last heard of
  #source = null; #timer = 0; #pause = 500; #on = null; #pulse = null; #open = ""; #heard = 0;

  constructor() {
    setInterval(() => this.#forget(), 30000);
    // A server says every ten seconds that it is there. A connection that is silent is dead, though nobody said so: a laptop slept.
    setInterval(() => { if (this.#source && Date.now() - this.#heard > 30000) this.#failed(); }, 5000);
  }

  // A page wants to hear something: a session behind a number, or the pulse. It says so again now and then.
  want(page, wants) {
    const before = this.#pages.get(page)?.wants;
    this.#pages.set(page, { wants, at: Date.now() });
    if (before && before.session === wants.session) return;
    if (this.#on !== null) page.postMessage({ on: this.#on });
    if (!wants.session && this.#pulse !== null) page.postMessage({ name: "pulse", data: this.#pulse });
    this.#change(Boolean(wants.session));
  }
  leave(page) { if (this.#pages.delete(page)) this.#change(false); }
  #forget() {
    const pages = [...this.#pages].filter(([, { at }]) => Date.now() - at > 120000);
    pages.forEach(([page]) => this.leave(page));
  }

  #address() {
    const sessions = new Map(), asked = new URLSearchParams();
    for (const { wants } of this.#pages.values()) {
      if (wants.session) sessions.set(wants.session, Math.min(wants.after, sessions.get(wants.session) ?? Infinity));
      else asked.set("pulse", "1");
    }
    for (const [id, after] of [...sessions].slice(-200)) asked.append("s", `${id}:${after}`);
    return `/ui/live?${asked}`;
  }
  // What is wanted, whatever has been heard of it already.
  #shape() { return JSON.stringify([...new Set([...this.#pages.values()].map(({ wants }) => wants.session ?? ""))].sort()); }
  #change(anew) {
    if (!anew && this.#source && this.#shape() === this.#open) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#connect(), 20);
  }
  #connect() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
    if (!this.#pages.size) { this.#on = this.#pulse = null; return; }
    this.#open = this.#shape();
    this.#heard = Date.now();
    this.#source = new EventSource(this.#address());
    this.#source.onopen = () => { this.#pause = 500; this.#tell({ on: true }); };
    this.#source.onmessage = (event) => this.#hear(JSON.parse(event.data));
    this.#source.onerror = () => this.#failed();
  }
  #failed() {
    this.#source?.close();
    this.#source = null;
    this.#tell({ on: false });
    this.#timer = setTimeout(() => this.#connect(), this.#pause);
    this.#pause = Math.min(this.#pause * 1.6, 8000);
    fetch("/ui/census", { headers: { "HX-Request": "true" } })
      .then((answer) => { if (answer.status === 401) this.#tell({ out: true }); })
      .catch(() => {}); // it is away, as has been said
  }
  #tell(news) {
    if ("on" in news) this.#on = news.on;
    for (const page of this.#pages.keys()) page.postMessage(news);
  }
  #hear(news) {
    this.#heard = Date.now();
    if (news.name === "pulse") this.#pulse = news.data;
    for (const [page, { wants }] of this.#pages) {
      if ((wants.session ?? "") !== (news.of ?? "")) continue;
      if (news.seq) wants.after = Math.max(wants.after, news.seq);
      page.postMessage(news);
    }
  }
}

if ("onconnect" in self) {
  const wire = new Wire();
  self.onconnect = ({ ports: [port] }) => {
    port.onmessage = ({ data }) => (data.leave ? wire.leave(port) : wire.want(port, data));
  };
} else self.Wire = Wire;
