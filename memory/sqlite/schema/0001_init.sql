-- The first schema. Times are Unix milliseconds. PRAGMA user_version holds the number of the last file applied.

-- What belongs to the file as a whole; key 'seal' holds salt and key check of the at-rest encryption.
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value BLOB NOT NULL
) WITHOUT ROWID;

-- An agent's frequently changing and searched columns. no is what messages and events refer to: eight bytes at most where the
-- id has 36. hint_* hold what cannot be told from the last message alone: see hints in write.go.
CREATE TABLE agent (
  no        INTEGER PRIMARY KEY AUTOINCREMENT,
  project   TEXT NOT NULL,
  id        TEXT NOT NULL,
  name      TEXT NOT NULL,
  channel   TEXT NOT NULL,
  status    INTEGER NOT NULL,
  start_ms  INTEGER NOT NULL,
  stop_ms   INTEGER NOT NULL,
  message   TEXT NOT NULL,
  rev       INTEGER NOT NULL,
  join_key  TEXT NOT NULL,
  join_hash TEXT NOT NULL,
  hint_rev  INTEGER NOT NULL DEFAULT 0,
  hint_turn INTEGER NOT NULL DEFAULT -1,
  hint_seq  INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX agent_id ON agent (project, id);
CREATE UNIQUE INDEX agent_live_name ON agent (project, name) WHERE status NOT IN (4, 6) AND name <> '';
CREATE UNIQUE INDEX agent_join_key ON agent (project, join_key) WHERE join_key <> '';
CREATE INDEX agent_live ON agent (project) WHERE status NOT IN (4, 6);
CREATE INDEX agent_start ON agent (project, start_ms, status);
CREATE INDEX agent_ended ON agent (stop_ms) WHERE status IN (4, 6);

-- Settings and properties, apart because they are large, seldom change and are sealed: see seal.go.
CREATE TABLE agent_settings (
  agent_no INTEGER PRIMARY KEY,
  body     BLOB NOT NULL
);

-- The ledger: an append-only log in order of arrival, so that the messages of one commit stand on the same few pages
-- whichever agents they belong to. There is no foreign key to agent: a sweep takes the agent away first, at once, and its
-- messages after it, in slices (table erased).
CREATE TABLE message (
  id        INTEGER PRIMARY KEY,
  agent_no  INTEGER NOT NULL,
  seq       INTEGER NOT NULL,
  rev       INTEGER NOT NULL,
  turn      INTEGER NOT NULL,
  shown     INTEGER NOT NULL, -- memory.Message.InHistory
  client_id TEXT,
  body      TEXT NOT NULL     -- JSON of the other fields: see codec.go
);
CREATE UNIQUE INDEX message_seq ON message (agent_no, seq);
CREATE UNIQUE INDEX message_client_id ON message (agent_no, client_id) WHERE client_id IS NOT NULL;

-- Agents that are gone and whose rows are still being erased.
CREATE TABLE erased (
  agent_no INTEGER PRIMARY KEY
);

-- Where events go. A deleted endpoint has no id and stays until its deliveries are closed.
CREATE TABLE endpoint (
  no      INTEGER PRIMARY KEY AUTOINCREMENT,
  id      TEXT UNIQUE,
  project TEXT NOT NULL,
  body    TEXT NOT NULL,
  secrets BLOB NOT NULL -- sealed as agent_settings.body
);

-- The outbox. Bodies stand apart from deliveries, which change with every attempt.
CREATE TABLE event (
  no         INTEGER PRIMARY KEY,
  id         TEXT NOT NULL UNIQUE,
  agent_no   INTEGER NOT NULL,
  agent_id   TEXT NOT NULL,
  project    TEXT NOT NULL,
  type       INTEGER NOT NULL,
  created_ms INTEGER NOT NULL,
  body       BLOB NOT NULL
);
CREATE INDEX event_agent ON event (agent_no);

CREATE TABLE delivery (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  event_no    INTEGER NOT NULL REFERENCES event (no),
  endpoint_no INTEGER NOT NULL,
  state       INTEGER NOT NULL, -- 0 pending, 1 delivered, 2 dead
  attempt     INTEGER NOT NULL, -- attempts begun and not given back
  due_ms      INTEGER NOT NULL,
  fence       INTEGER NOT NULL,
  claimed     INTEGER NOT NULL, -- 1 from claim to finish or release
  reason      TEXT NOT NULL
);
CREATE INDEX delivery_due ON delivery (endpoint_no, attempt > 0, due_ms, id) WHERE state = 0;
CREATE INDEX delivery_claimed ON delivery (endpoint_no, due_ms) WHERE state = 0 AND claimed = 1;
CREATE INDEX delivery_oldest ON delivery (due_ms) WHERE state = 0;
CREATE INDEX delivery_dead ON delivery (id) WHERE state = 2;
CREATE INDEX delivery_event ON delivery (event_no);

CREATE TABLE attempt (
  delivery_id INTEGER NOT NULL REFERENCES delivery (id),
  n           INTEGER NOT NULL,
  fence       INTEGER NOT NULL, -- of the claim: a released claim's number is used again
  started_ms  INTEGER NOT NULL,
  duration_ms INTEGER NOT NULL,
  status      INTEGER NOT NULL,
  error_class TEXT NOT NULL,
  error       TEXT NOT NULL,
  response    BLOB,
  truncated   INTEGER NOT NULL,
  PRIMARY KEY (delivery_id, n, fence)
) WITHOUT ROWID;
