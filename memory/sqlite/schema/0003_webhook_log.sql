-- Endpoints that are changed and watched at run time, and an outbox that can be listed, replayed and swept.

-- Health stands beside the body because it changes with deliveries. A deleted endpoint keeps its old id in gone_id and stays while
-- deliveries refer to it; closed = 1 when nothing is pending for it any more.
ALTER TABLE endpoint ADD COLUMN last_success_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE endpoint ADD COLUMN first_failure_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE endpoint ADD COLUMN gone_id TEXT;
ALTER TABLE endpoint ADD COLUMN closed INTEGER NOT NULL DEFAULT 0;

-- state 3 is canceled. created_ms is the event's time, or that of the replay.
ALTER TABLE delivery ADD COLUMN created_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE delivery ADD COLUMN done_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE delivery ADD COLUMN replay_of INTEGER NOT NULL DEFAULT 0;
UPDATE delivery SET created_ms = (SELECT e.created_ms FROM event e WHERE e.no = delivery.event_no);
UPDATE delivery SET done_ms = max(created_ms, coalesce((SELECT max(t.started_ms + t.duration_ms) FROM attempt t WHERE t.delivery_id = delivery.id), 0)) WHERE state <> 0;

ALTER TABLE attempt ADD COLUMN detail TEXT; -- JSON of webhook.Detail

-- The list goes by these three; it merges an endpoint's states, and a project's endpoints.
CREATE INDEX delivery_list ON delivery (endpoint_no, state, created_ms, id);
CREATE INDEX delivery_done ON delivery (done_ms) WHERE state <> 0;
CREATE INDEX event_list ON event (project, created_ms, no);
