-- Times are Unix milliseconds. PRAGMA user_version holds the number of the last migration that was
-- applied.

-- What belongs to the file as a whole. The key 'seal' holds the salt and the check value of the
-- encryption at rest. The key 'released' is missing in files from before the first release.
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value BLOB NOT NULL
) WITHOUT ROWID;
INSERT INTO meta (key, value) VALUES ('released', x'');

-- The columns of an agent that change often or are searched. Messages and events refer to no, which
-- is shorter than the id. head_rev, next_seq and last_turn describe its ledger after the last
-- change; a write compares head_rev.
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
  head_rev  INTEGER NOT NULL,
  next_seq  INTEGER NOT NULL,
  last_turn INTEGER NOT NULL,
  written   INTEGER NOT NULL DEFAULT 0, -- bytes of messages, for what its project uses
  tally     BLOB NOT NULL DEFAULT x''    -- memory.Tally, encoded
);
CREATE UNIQUE INDEX agent_id ON agent (project, id);
CREATE UNIQUE INDEX agent_live_name ON agent (project, name) WHERE status NOT IN (4, 6) AND name <> '';
CREATE UNIQUE INDEX agent_join_key ON agent (project, join_key) WHERE join_key <> '';
CREATE INDEX agent_live ON agent (project) WHERE status NOT IN (4, 6);
CREATE INDEX agent_ended ON agent (stop_ms) WHERE status IN (4, 6);
CREATE INDEX agent_ended_name ON agent (project, name, stop_ms) WHERE status IN (4, 6) AND name <> '';
CREATE INDEX agent_name_start ON agent (project, name, status, start_ms);
CREATE INDEX agent_state_start ON agent (project, status, start_ms);
CREATE INDEX agent_channel ON agent (project, channel, start_ms, status);

-- What agents are found by: memory.Head.Tags. start_ms is the agent's.
CREATE TABLE agent_tag (
  project  TEXT NOT NULL,
  name     TEXT NOT NULL,
  value    TEXT NOT NULL,
  start_ms INTEGER NOT NULL,
  agent_no INTEGER NOT NULL,
  PRIMARY KEY (project, name, value, start_ms, agent_no)
) WITHOUT ROWID;
CREATE INDEX agent_tag_agent ON agent_tag (agent_no);

-- Settings and properties, encoded by package codec and sealed. They are large and seldom change,
-- so they have a table of their own.
CREATE TABLE agent_settings (
  agent_no INTEGER PRIMARY KEY,
  body     BLOB NOT NULL
);

-- The keys by which platforms name a call. A live agent's own key (shared = 0) belongs to no other
-- live agent of the project. A shared key, such as a channel, may belong to several.
CREATE TABLE agent_key (
  project  TEXT NOT NULL,
  key      TEXT NOT NULL,
  agent_no INTEGER NOT NULL,
  shared   INTEGER NOT NULL,
  PRIMARY KEY (project, key, agent_no)
) WITHOUT ROWID;
CREATE INDEX agent_key_agent ON agent_key (agent_no);

-- The ledger: an append-only log in order of arrival, so that the messages of one commit stand on
-- the same few pages whichever agents they belong to. There is no foreign key to agent: a sweep
-- deletes the agent first, at once, and its messages after it, in slices (table erased).
CREATE TABLE message (
  id        INTEGER PRIMARY KEY,
  agent_no  INTEGER NOT NULL,
  seq       INTEGER NOT NULL,
  rev       INTEGER NOT NULL,
  turn      INTEGER NOT NULL,
  shown     INTEGER NOT NULL, -- memory.Message.InHistory
  client_id TEXT,
  body      TEXT NOT NULL     -- the other fields, encoded by package codec
);
CREATE UNIQUE INDEX message_seq ON message (agent_no, seq);
CREATE UNIQUE INDEX message_client_id ON message (agent_no, client_id) WHERE client_id IS NOT NULL;

-- Messages that have a scope or came as items, by whom they belong to. no is the order in which
-- they came. An ID that is not set is empty.
CREATE TABLE item (
  no         INTEGER PRIMARY KEY AUTOINCREMENT,
  project    TEXT NOT NULL, -- of the item; see memory.ItemProject
  id         TEXT NOT NULL,
  agent_no   INTEGER NOT NULL,
  seq        INTEGER NOT NULL,
  user_id    TEXT NOT NULL,
  session_id TEXT NOT NULL,
  task_id    TEXT NOT NULL,
  agent_id   TEXT NOT NULL
);
CREATE UNIQUE INDEX item_message ON item (agent_no, seq);
CREATE INDEX item_id ON item (project, id);
CREATE INDEX item_project ON item (project);
CREATE INDEX item_user ON item (project, user_id) WHERE user_id <> '';
-- Finds the agents with messages of a user; see items.Store.AgentsOf.
CREATE INDEX item_caller ON item (project, user_id, agent_no) WHERE user_id <> '';
CREATE INDEX item_session ON item (project, session_id) WHERE session_id <> '';
CREATE INDEX item_task ON item (project, task_id) WHERE task_id <> '';
CREATE INDEX item_agent ON item (project, agent_id) WHERE agent_id <> '';

-- Agents that were erased and whose rows are still being deleted.
CREATE TABLE erased (
  agent_no INTEGER PRIMARY KEY
);

-- Keys and values: agents' working memories, and, under agent_no 0, the saved conversations and the
-- namespaces (project/name) of projects. project is empty for an agent's entries. body is sealed. size counts key and value as
-- the client sent them. expires_ms is the largest integer for an entry that stays.
CREATE TABLE kv (
  no         INTEGER PRIMARY KEY,
  agent_no   INTEGER NOT NULL,
  project    TEXT NOT NULL,
  key        TEXT NOT NULL,
  size       INTEGER NOT NULL,
  updated_ms INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL,
  pinned     INTEGER NOT NULL,
  used_ms    INTEGER NOT NULL, -- when it was last set or read, and how often
  uses       INTEGER NOT NULL,
  body       BLOB NOT NULL
);
CREATE UNIQUE INDEX kv_key ON kv (agent_no, project, key);
CREATE INDEX kv_live ON kv (agent_no, project, expires_ms, size);
CREATE INDEX kv_expires ON kv (expires_ms);
-- How much an agent or a project has, expired or not, so that neither a limit nor a list has to add
-- it up.
CREATE TABLE kv_total (
  agent_no INTEGER NOT NULL,
  project  TEXT NOT NULL,
  n        INTEGER NOT NULL,
  size     INTEGER NOT NULL,
  PRIMARY KEY (agent_no, project)
) WITHOUT ROWID;

-- Spaces of records; see package record. A space has a row from its first change until it has
-- neither a record nor a deletion. The row of a project with an empty name holds the revision from
-- which new spaces begin. user_id is empty for a space of no user.
CREATE TABLE record_space (
  no      INTEGER PRIMARY KEY,
  project TEXT NOT NULL,
  name    TEXT NOT NULL,
  user_id TEXT NOT NULL,
  rev     INTEGER NOT NULL,
  n       INTEGER NOT NULL, -- records that are not deleted
  bytes   INTEGER NOT NULL, -- of their IDs and bodies
  whole   INTEGER NOT NULL  -- record.State.Whole
);
CREATE UNIQUE INDEX record_space_name ON record_space (project, name, user_id);
CREATE INDEX record_space_user ON record_space (project, user_id, name) WHERE user_id <> '';
-- body is sealed, or null for a deletion that is still listed.
CREATE TABLE record (
  no         INTEGER PRIMARY KEY,
  space_no   INTEGER NOT NULL,
  id         TEXT NOT NULL,
  rev        INTEGER NOT NULL,
  updated_ms INTEGER NOT NULL,
  size       INTEGER NOT NULL, -- of ID and body as the client sent them; 0 for a deletion
  body       BLOB
);
CREATE UNIQUE INDEX record_id ON record (space_no, id);
CREATE INDEX record_rev ON record (space_no, rev, id);
CREATE INDEX record_deleted ON record (updated_ms) WHERE body IS NULL;
-- The words by which records are found, as hexadecimal hashes; rowid is record.no.
CREATE VIRTUAL TABLE record_word USING fts5(words, content = '', contentless_delete = 1, detail = none, tokenize = ascii);
CREATE TRIGGER record_word_gone AFTER DELETE ON record BEGIN DELETE FROM record_word WHERE rowid = old.no; END;
CREATE TRIGGER record_word_old AFTER UPDATE OF body ON record BEGIN DELETE FROM record_word WHERE rowid = old.no; END;

-- Where events go. Health stands beside the body because it changes with deliveries. A deleted
-- endpoint has no id; it keeps the old one in gone_id and stays while deliveries refer to it.
-- closed = 1 when nothing is pending for it any more.
CREATE TABLE endpoint (
  no               INTEGER PRIMARY KEY AUTOINCREMENT,
  id               TEXT UNIQUE,
  gone_id          TEXT,
  project          TEXT NOT NULL,
  body             TEXT NOT NULL,
  secrets          BLOB NOT NULL, -- sealed
  closed           INTEGER NOT NULL DEFAULT 0,
  last_success_ms  INTEGER NOT NULL DEFAULT 0,
  first_failure_ms INTEGER NOT NULL DEFAULT 0,
  last_failure_ms  INTEGER NOT NULL DEFAULT 0 -- a run of failures ends with a success or with a long silence
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
CREATE INDEX event_list ON event (project, created_ms, no);
CREATE INDEX event_type ON event (project, type); -- whether a project has events of a type

-- Claims are kept in memory: one process owns the file, and a claim ends with it.
CREATE TABLE delivery (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  event_no    INTEGER NOT NULL REFERENCES event (no),
  endpoint_no INTEGER NOT NULL,
  state       INTEGER NOT NULL, -- 0 pending, 1 delivered, 2 dead, 3 canceled
  attempt     INTEGER NOT NULL, -- attempts begun and not given back
  due_ms      INTEGER NOT NULL,
  fence       INTEGER NOT NULL,
  reason      TEXT NOT NULL,
  created_ms  INTEGER NOT NULL, -- the event's time, or that of the replay
  done_ms     INTEGER NOT NULL DEFAULT 0,
  first_ms    INTEGER NOT NULL DEFAULT 0, -- when the first try was due, if that is not created_ms: a paced replay; else 0
  urgent      INTEGER NOT NULL DEFAULT 0, -- 1 for a test that nobody has claimed yet: it goes before what waits for its endpoint
  replay_of   INTEGER NOT NULL DEFAULT 0,
  replay_no   INTEGER NOT NULL DEFAULT 0 -- of the replay of many that made it; 0 = none
);
CREATE INDEX delivery_due ON delivery (endpoint_no, attempt > 0, due_ms, id) WHERE state = 0;
-- The oldest delivery that waits after a first try, by when that was due. What has not been tried
-- is found by delivery_due, and is not written to this index.
CREATE INDEX delivery_first ON delivery (endpoint_no, CASE first_ms WHEN 0 THEN created_ms ELSE first_ms END) WHERE state = 0 AND attempt > 0;
CREATE INDEX delivery_urgent ON delivery (id) WHERE state = 0 AND urgent = 1;
CREATE INDEX delivery_dead ON delivery (id) WHERE state = 2;
CREATE INDEX delivery_event ON delivery (event_no);
-- A list merges an endpoint's states, and a project's endpoints.
CREATE INDEX delivery_list ON delivery (endpoint_no, state, created_ms, id);
CREATE INDEX delivery_done ON delivery (done_ms) WHERE state <> 0;

CREATE TABLE attempt (
  delivery_id INTEGER NOT NULL REFERENCES delivery (id),
  n           INTEGER NOT NULL,
  fence       INTEGER NOT NULL, -- of the claim: the number of a released claim is used again
  started_ms  INTEGER NOT NULL,
  duration_ms INTEGER NOT NULL,
  status      INTEGER NOT NULL,
  error_class TEXT NOT NULL,
  error       TEXT NOT NULL,
  response    BLOB,
  truncated   INTEGER NOT NULL,
  detail      TEXT, -- JSON of webhook.Detail
  PRIMARY KEY (delivery_id, n, fence)
) WITHOUT ROWID;

-- Replays that a caller has named, and those under way. upto is the newest delivery that there was
-- when the replay began: those that it makes come after. at_ms and at_id are how far it has come.
CREATE TABLE replay (
  no          INTEGER PRIMARY KEY AUTOINCREMENT,
  id          TEXT NOT NULL UNIQUE,
  project     TEXT NOT NULL,
  request     TEXT NOT NULL,    -- JSON of the request
  now_ms      INTEGER NOT NULL,
  upto        INTEGER NOT NULL,
  at_ms       INTEGER NOT NULL,
  at_id       INTEGER NOT NULL,
  made        INTEGER NOT NULL, -- deliveries so far
  delivery_id INTEGER NOT NULL, -- of a replay of one delivery: the delivery that it made
  more        INTEGER NOT NULL,
  to_ms       INTEGER NOT NULL,
  done        INTEGER NOT NULL
);
