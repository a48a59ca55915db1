-- Saved conversations: snapshots under names of their owner's choice. body is sealed as agent_settings.body; size is its length, by which a
-- clear cuts its work into slices.
CREATE TABLE conversation (
  no      INTEGER PRIMARY KEY,
  project TEXT NOT NULL,
  id      TEXT NOT NULL,
  size    INTEGER NOT NULL,
  body    BLOB NOT NULL
);
CREATE UNIQUE INDEX conversation_id ON conversation (project, id);
-- How many a project holds, so that neither its limit nor a list has to count them.
CREATE TABLE conversation_count (
  project TEXT PRIMARY KEY,
  n       INTEGER NOT NULL
) WITHOUT ROWID;
