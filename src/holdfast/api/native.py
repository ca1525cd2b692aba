"""All native routes. What stands here is served, described in the OpenAPI document and listed at `/docs`."""

from holdfast.api import asked, contexts, events, forms, hermes, looking, metrics, sessions, turns
from holdfast.api.doors import Door

SESSION = "/v1/sessions/{ref}"

DOORS = (
    Door("GET", "/v1/sessions", sessions.list_, forms.Sessions, query=asked.ListAsked),
    Door("POST", "/v1/sessions", sessions.create, forms.Session, body=asked.NewSession, status=201),
    Door("GET", SESSION, sessions.get, forms.Session),
    Door("PATCH", SESSION, sessions.patch, forms.Session, body=asked.Change),
    Door("DELETE", SESSION, sessions.delete, forms.Session),
    Door("GET", f"{SESSION}/messages", sessions.messages, forms.Messages, query=asked.PageAsked, large=True),
    Door("GET", f"{SESSION}/events", events.events, forms.Events, query=asked.PageAsked, large=True),
    Door("POST", f"{SESSION}/turns", turns.begin, forms.Begun, body=asked.TurnAsked, status=202),
    Door("GET", f"{SESSION}/turns/{{turn_id}}", turns.get, forms.Turn, large=True),
    Door("POST", f"{SESSION}/interrupt", sessions.interrupt, forms.Interrupted),
    Door("POST", f"{SESSION}/fork", sessions.fork, forms.Session, body=asked.ForkAsked, status=201),
    Door("POST", f"{SESSION}/end", sessions.end, forms.Session),
    Door("POST", f"{SESSION}/reopen", sessions.reopen, forms.Session),
    Door("POST", f"{SESSION}/restore", sessions.restore, forms.Session),
    Door("GET", f"{SESSION}/compact", contexts.compactions, forms.Compactions),
    Door("POST", f"{SESSION}/compact", contexts.compact, forms.Compacted, body=asked.CompactAsked),
    Door("GET", f"{SESSION}/why", contexts.why, forms.Why, large=True),
    Door("GET", f"{SESSION}/processes", looking.processes_of, forms.Processes, query=asked.ProcessesAsked),
    Door("GET", f"{SESSION}/approvals", turns.questions, forms.Approvals),
    Door("POST", f"{SESSION}/approvals/{{call_id}}", turns.answer, forms.Answered, body=asked.Answer),
    Door("GET", "/v1/approvals", turns.every_question, forms.Approvals, query=asked.ApprovalsAsked),
    Door("GET", "/v1/search", looking.search, forms.Hits, query=asked.SearchAsked),
    Door("GET", "/v1/workers", looking.list_workers, forms.Workers, query=asked.WorkersAsked),
    Door("GET", "/v1/processes", looking.list_processes, forms.Processes, query=asked.ProcessesAsked),
    Door("GET", "/v1/processes/{id}", looking.get_process, forms.Process),
    Door("GET", "/v1/processes/{id}/log", looking.output, forms.Output, query=asked.OutputAsked),
    Door("DELETE", "/v1/processes/{id}", looking.kill, forms.Process),
    Door("POST", "/v1/janitor/sweep", looking.sweep, forms.Sweep),
    Door("GET", "/v1/idle", looking.idle, forms.Idle),
    Door("GET", "/v1/activity", looking.activity, forms.Activity, query=asked.ActivityAsked),
    Door("GET", "/v1/space/activity", looking.activity, forms.Activity, query=asked.ActivityAsked),
    Door("GET", "/api/sessions", hermes.list_, forms.HermesSessions, query=asked.HermesAsked),
    Door("GET", "/api/sessions/{ref}", hermes.get, forms.HermesOne),
    Door("GET", "/metrics", metrics.metrics),
)
