"""All native routes. They are served, described in the OpenAPI document and listed at `/docs`."""

from holdfast.api import metrics
from holdfast.api.native import (
    activity,
    compaction,
    events,
    files,
    goals,
    hermes_compat,
    memory,
    processes,
    questions,
    request_models,
    response_models,
    rewinds,
    search,
    sessions,
    shares,
    turns,
    usage,
)
from holdfast.api.native.endpoint import Endpoint
from holdfast.interop.documents.explanation import CompactResponse, WhyResponse
from holdfast.interop.documents.memory import FactDetailResponse, FactItem, FactListResponse, ForgottenResponse
from holdfast.interop.documents.processes import ProcessItem, ProcessListResponse
from holdfast.interop.documents.questions import (
    ApprovalRuleItem,
    ApprovalRuleListResponse,
    QuestionItem,
    QuestionListResponse,
)
from holdfast.interop.documents.rewinds import RewindResponse
from holdfast.interop.documents.search import SearchResponse
from holdfast.interop.documents.sessions import SessionDetailResponse, SessionListResponse, SessionResponse
from holdfast.interop.documents.shares import NewShareResponse, ShareItem, ShareListResponse
from holdfast.interop.documents.usage import SessionUsageResponse, UsageResponse
from holdfast.interop.documents.workers import SweepResponse, WorkerListResponse

SESSION = "/v1/sessions/{ref}"

ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/sessions",
        sessions.list_,
        SessionListResponse,
        query=request_models.ListSessionsRequest,
    ),
    Endpoint(
        "POST",
        "/v1/sessions",
        sessions.create,
        SessionResponse,
        body=request_models.NewSessionRequest,
        status=201,
        repeat_status=200,
    ),
    Endpoint("GET", SESSION, sessions.get, SessionDetailResponse),
    Endpoint("PATCH", SESSION, sessions.patch, SessionResponse, body=request_models.ChangeSessionRequest),
    Endpoint("DELETE", SESSION, sessions.delete, SessionResponse),
    Endpoint(
        "GET",
        f"{SESSION}/messages",
        sessions.messages,
        response_models.MessageListResponse,
        query=request_models.PageRequest,
        large=True,
    ),
    Endpoint(
        "GET",
        f"{SESSION}/events",
        events.events,
        response_models.EventListResponse,
        query=request_models.PageRequest,
        large=True,
    ),
    Endpoint("GET", f"{SESSION}/files/{{name}}", files.get_file),
    Endpoint(
        "POST",
        f"{SESSION}/turns",
        turns.start_turn,
        response_models.TurnAccepted,
        body=request_models.TurnRequest,
        status=202,
    ),
    Endpoint("GET", f"{SESSION}/turns/{{turn_id}}", turns.get_turn, response_models.TurnResponse, large=True),
    Endpoint("POST", f"{SESSION}/interrupt", sessions.interrupt, response_models.InterruptResponse),
    Endpoint(
        "POST",
        f"{SESSION}/fork",
        sessions.fork,
        SessionResponse,
        body=request_models.ForkRequest,
        status=201,
    ),
    Endpoint("POST", f"{SESSION}/end", sessions.end, SessionResponse),
    Endpoint("POST", f"{SESSION}/reopen", sessions.reopen, SessionResponse),
    Endpoint("POST", f"{SESSION}/restore", sessions.restore, SessionResponse),
    Endpoint("GET", f"{SESSION}/compact", compaction.list_compactions, response_models.CompactionListResponse),
    Endpoint(
        "POST",
        f"{SESSION}/compact",
        compaction.compact,
        CompactResponse,
        body=request_models.CompactRequest,
    ),
    Endpoint(
        "POST", f"{SESSION}/rewind", rewinds.rewind, RewindResponse, body=request_models.RewindRequest, large=True
    ),
    Endpoint("POST", f"{SESSION}/shares", shares.share, NewShareResponse, body=request_models.ShareRequest, status=201),
    Endpoint("GET", f"{SESSION}/shares", shares.list_, ShareListResponse),
    Endpoint("DELETE", "/v1/shares/{id}", shares.revoke, ShareItem),
    Endpoint("GET", f"{SESSION}/goal", goals.get, response_models.GoalResponse),
    Endpoint(
        "PUT",
        f"{SESSION}/goal",
        goals.put,
        response_models.GoalResponse,
        body=request_models.GoalRequest,
        status=202,
        repeat_status=200,
    ),
    Endpoint(
        "PATCH", f"{SESSION}/goal", goals.patch, response_models.GoalResponse, body=request_models.ChangeGoalRequest
    ),
    Endpoint("DELETE", f"{SESSION}/goal", goals.delete, response_models.GoalResponse),
    Endpoint("GET", f"{SESSION}/why", compaction.explain_session, WhyResponse, large=True),
    Endpoint(
        "GET",
        f"{SESSION}/processes",
        processes.list_session_processes,
        ProcessListResponse,
        query=request_models.ListProcessesRequest,
    ),
    Endpoint("GET", f"{SESSION}/approvals", turns.list_approvals, response_models.ApprovalListResponse),
    Endpoint(
        "POST",
        f"{SESSION}/approvals/{{call_id}}",
        turns.answer_approval,
        response_models.AnswerResponse,
        body=request_models.AnswerRequest,
    ),
    Endpoint(
        "GET",
        "/v1/approvals",
        turns.list_all_approvals,
        response_models.ApprovalListResponse,
        query=request_models.ListApprovalsRequest,
    ),
    Endpoint(
        "GET",
        "/v1/questions",
        questions.list_,
        QuestionListResponse,
        query=request_models.ListQuestionsRequest,
        large=True,
    ),
    Endpoint("GET", "/v1/questions/{id}", questions.get, QuestionItem, large=True),
    Endpoint(
        "POST",
        "/v1/questions/{id}",
        questions.answer,
        QuestionItem,
        body=request_models.AnswerQuestionRequest,
        large=True,
    ),
    Endpoint(
        "GET",
        "/v1/approval-rules",
        questions.list_rules,
        ApprovalRuleListResponse,
        query=request_models.ListRulesRequest,
    ),
    Endpoint("DELETE", "/v1/approval-rules/{id}", questions.revoke_rule, ApprovalRuleItem),
    Endpoint("GET", f"{SESSION}/usage", usage.get_session_usage, SessionUsageResponse),
    Endpoint(
        "POST", f"{SESSION}/budget", usage.raise_budget, SessionUsageResponse, body=request_models.RaiseBudgetRequest
    ),
    Endpoint("GET", "/v1/usage", usage.get_usage, UsageResponse, query=request_models.UsageRequest),
    Endpoint("GET", "/v1/usage.csv", usage.get_usage_csv, query=request_models.UsageRequest),
    Endpoint("GET", "/v1/memory", memory.list_, FactListResponse, query=request_models.ListFactsRequest, large=True),
    Endpoint("POST", "/v1/memory", memory.add, FactItem, body=request_models.NewFactRequest, status=201),
    Endpoint("GET", "/v1/memory/{id}", memory.get, FactDetailResponse),
    Endpoint("PATCH", "/v1/memory/{id}", memory.correct, FactItem, body=request_models.CorrectFactRequest),
    Endpoint("DELETE", "/v1/memory/{id}", memory.forget, ForgottenResponse),
    Endpoint("GET", "/v1/search", search.search, SearchResponse, query=request_models.SearchRequest),
    Endpoint(
        "GET",
        "/v1/workers",
        activity.list_workers,
        WorkerListResponse,
        query=request_models.ListWorkersRequest,
    ),
    Endpoint(
        "GET",
        "/v1/processes",
        processes.list_processes,
        ProcessListResponse,
        query=request_models.ListProcessesRequest,
    ),
    Endpoint("GET", "/v1/processes/{id}", processes.get_process, ProcessItem),
    Endpoint(
        "GET",
        "/v1/processes/{id}/log",
        processes.read_output,
        response_models.ProcessOutputResponse,
        query=request_models.ProcessOutputRequest,
    ),
    Endpoint("DELETE", "/v1/processes/{id}", processes.stop_process, ProcessItem),
    Endpoint("POST", "/v1/janitor/sweep", activity.sweep, SweepResponse),
    Endpoint("GET", "/v1/idle", activity.get_idle, response_models.IdleResponse),
    Endpoint(
        "GET",
        "/v1/activity",
        activity.get_activity,
        response_models.ActivityResponse,
        query=request_models.ActivityRequest,
    ),
    Endpoint(
        "GET",
        "/v1/space/activity",
        activity.get_activity,
        response_models.ActivityResponse,
        query=request_models.ActivityRequest,
    ),
    Endpoint(
        "GET",
        "/api/sessions",
        hermes_compat.list_,
        response_models.HermesSessionList,
        query=request_models.HermesListRequest,
    ),
    Endpoint("GET", "/api/sessions/{ref}", hermes_compat.get, response_models.HermesSessionResponse),
    Endpoint("GET", "/metrics", metrics.metrics),
)
