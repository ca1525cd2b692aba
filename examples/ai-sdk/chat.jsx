import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import { useEffect, useRef, useState } from "react";
import { createRoot } from "react-dom/client";

const API = "/api/chat";

function Chat({ id, history, writing }) {
  const lost = useRef(writing); // the message whose stream broke off, or that was being written when the page was loaded
  const [transport] = useState(
    () =>
      new DefaultChatTransport({
        api: API,
        // If the turn has ended by the time we reconnect, naming the message still brings the rest of it.
        prepareReconnectToStreamRequest: ({ id }) => ({
          api: `${API}/${encodeURIComponent(id)}/stream${lost.current ? `?message=${encodeURIComponent(lost.current)}` : ""}`,
        }),
      }),
  );
  const chat = useChat({
    id,
    messages: history,
    transport,
    resume: true,
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    onFinish: ({ message, isDisconnect }) => {
      lost.current = isDisconnect ? message.id : null;
    },
  });
  const { messages, status, error, sendMessage, regenerate, resumeStream, addToolApprovalResponse } = chat;
  const [text, setText] = useState("");
  const isBusy = status === "submitted" || status === "streaming";

  // The server is away: ask again until it is back. The log has everything that it had accepted.
  useEffect(() => {
    if (status !== "error" || !lost.current) return;
    const timer = setTimeout(resumeStream, 1000);
    return () => clearTimeout(timer);
  }, [status, error]);

  const stop = () => fetch(`${API}/${encodeURIComponent(id)}/stop`, { method: "POST" });
  const send = (event) => {
    event.preventDefault();
    if (!text.trim()) return;
    sendMessage({ text });
    setText("");
  };

  return (
    <main>
      {messages.map((message) => (
        <article key={message.id} data-role={message.role}>
          <b>{message.role === "user" ? "You" : "Agent"}</b>
          {message.parts.map((part, index) => (
            <Part key={index} part={part} answer={addToolApprovalResponse} />
          ))}
        </article>
      ))}
      {error && <p role="alert">{lost.current ? "The connection is lost; connecting again…" : error.message}</p>}
      <form onSubmit={send}>
        <input aria-label="Message" value={text} onChange={(event) => setText(event.target.value)} autoFocus />
        {isBusy ? <button type="button" onClick={stop}>Stop</button> : <button>Send</button>}
        <button type="button" onClick={() => regenerate()} disabled={isBusy || !messages.length}>Regenerate</button>
        <button type="button" onClick={() => (location.search = "")}>New chat</button>
      </form>
      <small data-status={status}>{status}</small>
    </main>
  );
}

function Part({ part, answer }) {
  if (part.type === "text") {
    const marks = part.providerMetadata?.holdfast ?? {};
    if (marks.discarded) return null; // the model began this reply again
    return <span>{part.text}{marks.partial && <em> (stopped here)</em>}</span>;
  }
  if (part.type === "reasoning") return <details><summary>Thoughts</summary>{part.text}</details>;
  if (part.type !== "dynamic-tool") return null;
  if (part.state === "approval-requested") {
    return (
      <div className="asked">
        <pre>{part.approval.descriptor?.question}</pre>
        <button onClick={() => answer({ id: part.approval.id, approved: true })}>Allow</button>{" "}
        <button onClick={() => answer({ id: part.approval.id, approved: false })}>Deny</button>
      </div>
    );
  }
  return (
    <details>
      <summary>{part.toolName}: {part.state.replace("output-available", "done").replace("output-", "").replace("-", " ")}</summary>
      <pre>{JSON.stringify(part.input, null, 2)}</pre>
      <pre>{part.errorText ?? part.output}</pre>
    </details>
  );
}

function Page() {
  const [id] = useState(() => {
    const query = new URLSearchParams(location.search);
    if (!query.get("chat")) query.set("chat", crypto.randomUUID());
    history.replaceState(null, "", `?${query}`);
    return query.get("chat");
  });
  const [loaded, setLoaded] = useState(null);
  useEffect(() => {
    fetch(`${API}/${encodeURIComponent(id)}/messages`)
      .then(async (answer) => (answer.ok ? answer.json() : Promise.reject(new Error(await answer.text()))))
      .then((chat) => setLoaded(chat), (error) => setLoaded({ error }));
  }, [id]);
  if (loaded === null) return <p>Loading…</p>;
  if (loaded.error) return <p role="alert">{loaded.error.message}</p>;
  return <Chat id={id} history={loaded.messages} writing={loaded.writing} />;
}

createRoot(document.getElementById("root")).render(<Page />);
