-- Data keys, which seal values of a project or, with a user_id, of one of its callers; see package
-- encryption. They are wrapped by HEARDLOG_DATA_KEY. A database with a row 'data' in table meta has
-- them. The number of a key that was destroyed is never used again.
CREATE TABLE data_key (
  no      INTEGER PRIMARY KEY AUTOINCREMENT,
  project TEXT NOT NULL,
  user_id TEXT NOT NULL,
  made_ms INTEGER NOT NULL,
  wrapped BLOB NOT NULL
);
CREATE INDEX data_key_of ON data_key (project, user_id, no);
