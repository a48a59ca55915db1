-- Messages that have a scope, or came as items, by whose they are; no tells the order in which they came. An id that is not set is empty. Each index gives
-- its rows in order of no.
CREATE TABLE item (
  no         INTEGER PRIMARY KEY AUTOINCREMENT,
  project    TEXT NOT NULL, -- of the item, which is not that of an agent that keeps a project's items: see memory.ItemProject
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
CREATE INDEX item_session ON item (project, session_id) WHERE session_id <> '';
CREATE INDEX item_task ON item (project, task_id) WHERE task_id <> '';
CREATE INDEX item_agent ON item (project, agent_id) WHERE agent_id <> '';
