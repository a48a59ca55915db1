-- Working memories: keys and values of an agent's own, each with its end. body is sealed as agent_settings.body; size is what an entry counts against
-- its agent's limit, key and value as they were given.
CREATE TABLE working (
  no         INTEGER PRIMARY KEY,
  agent_no   INTEGER NOT NULL,
  key        TEXT NOT NULL,
  size       INTEGER NOT NULL,
  updated_ms INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL,
  body       BLOB NOT NULL
);
CREATE UNIQUE INDEX working_key ON working (agent_no, key);
CREATE INDEX working_live ON working (agent_no, expires_ms, size);
CREATE INDEX working_expires ON working (expires_ms);
-- How much of an agent's is stored, expired or not, so that no write has to add it up.
CREATE TABLE working_total (
  agent_no INTEGER PRIMARY KEY,
  n        INTEGER NOT NULL,
  size     INTEGER NOT NULL
);
