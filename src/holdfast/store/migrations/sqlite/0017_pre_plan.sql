-- Finds a session's plan without reading its log.
CREATE INDEX event_plan ON event (session_id, seq) WHERE kind IN ('plan_changed', 'rewound');
