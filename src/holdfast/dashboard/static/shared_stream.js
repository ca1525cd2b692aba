// One event stream for all pages of a browser, because browsers limit the connections to one server.
// Runs in a SharedWorker; without one, each page has its own stream.
"use strict";
class SharedStream {
  #pages = new Map(); // what each page subscribes to, and when it last said so
  #source = null; #reconnectTimer = 0; #retryDelay = 500; #isConnected = null; #lastPulse = null; #openSubscriptions = ""; #lastMessageAt = 0;

  constructor() {
    setInterval(() => this.#removeStale(), 30000);
    // The server sends a heartbeat every ten seconds. A silent connection is dead even without an error, for example after a laptop slept.
    setInterval(() => { if (this.#source && Date.now() - this.#lastMessageAt > 30000) this.#failed(); }, 5000);
  }

  // A page subscribes to a session after an event number, or to store changes. It repeats this periodically.
  want(page, wants) {
    const before = this.#pages.get(page)?.wants;
    this.#pages.set(page, { wants, at: Date.now() });
    if (before && before.session === wants.session) return;
    if (this.#isConnected !== null) page.postMessage({ on: this.#isConnected });
    if (!wants.session && this.#lastPulse !== null) page.postMessage({ name: "pulse", data: this.#lastPulse });
    this.#update(Boolean(wants.session));
  }
  leave(page) { if (this.#pages.delete(page)) this.#update(false); }
  #removeStale() {
    const pages = [...this.#pages].filter(([, { at }]) => Date.now() - at > 120000);
    pages.forEach(([page]) => this.leave(page));
  }

  #url() {
    const sessions = new Map(), query = new URLSearchParams();
    for (const { wants } of this.#pages.values()) {
      if (wants.session) sessions.set(wants.session, Math.min(wants.after, sessions.get(wants.session) ?? Infinity));
      else query.set("pulse", "1");
    }
    for (const [id, after] of [...sessions].slice(-200)) query.append("s", `${id}:${after}`);
    return `/ui/live?${query}`;
  }
  // The subscriptions, without their positions.
  #subscriptions() { return JSON.stringify([...new Set([...this.#pages.values()].map(({ wants }) => wants.session ?? ""))].sort()); }
  #update(restart) {
    if (!restart && this.#source && this.#subscriptions() === this.#openSubscriptions) return;
    clearTimeout(this.#reconnectTimer);
    this.#reconnectTimer = setTimeout(() => this.#connect(), 20);
  }
  #connect() {
    clearTimeout(this.#reconnectTimer);
    this.#source?.close();
    this.#source = null;
    if (!this.#pages.size) { this.#isConnected = this.#lastPulse = null; return; }
    this.#openSubscriptions = this.#subscriptions();
    this.#lastMessageAt = Date.now();
    this.#source = new EventSource(this.#url());
    this.#source.onopen = () => { this.#retryDelay = 500; this.#broadcast({ on: true }); };
    this.#source.onmessage = (event) => this.#dispatch(JSON.parse(event.data));
    this.#source.onerror = () => this.#failed();
  }
  #failed() {
    this.#source?.close();
    this.#source = null;
    this.#broadcast({ on: false });
    this.#reconnectTimer = setTimeout(() => this.#connect(), this.#retryDelay);
    this.#retryDelay = Math.min(this.#retryDelay * 1.6, 8000);
    fetch("/ui/census", { headers: { "HX-Request": "true" } })
      .then((response) => { if (response.status === 401) this.#broadcast({ out: true }); })
      .catch(() => {}); // the page already shows that the server is offline
  }
  #broadcast(update) {
    if ("on" in update) this.#isConnected = update.on;
    for (const page of this.#pages.keys()) page.postMessage(update);
  }
  #dispatch(update) {
    this.#lastMessageAt = Date.now();
    if (update.name === "pulse") this.#lastPulse = update.data;
    for (const [page, { wants }] of this.#pages) {
      if ((wants.session ?? "") !== (update.of ?? "")) continue;
      if (update.seq) wants.after = Math.max(wants.after, update.seq);
      page.postMessage(update);
    }
  }
}

if ("onconnect" in self) {
  const stream = new SharedStream();
  self.onconnect = ({ ports: [port] }) => {
    port.onmessage = ({ data }) => (data.leave ? stream.leave(port) : stream.want(port, data));
  };
} else self.SharedStream = SharedStream;
