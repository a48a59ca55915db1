-- The body in fewer bytes; see package codec. Messages of before have it in body, which is text.
ALTER TABLE message ADD COLUMN packed bytea;
ALTER TABLE message ALTER COLUMN body SET DEFAULT '';
-- An answer is updated once or twice soon after it was stored. With room left, the new row stands on
-- the same page, and no index changes. The space of the old ones is used again after a vacuum, which
-- comes after so many rows, however long the table is.
ALTER TABLE message SET (fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 20000);

-- The length of the body, which is packed too. Null in rows of before.
ALTER TABLE event ADD COLUMN size bigint;

-- An item's id and agent_id are short where they follow from its place; see memories.Row.Stored. The
-- number is unique in a project.
DROP INDEX item_id;
DROP INDEX item_agent;
DROP INDEX item_project;
DROP INDEX item_message;
ALTER TABLE item DROP CONSTRAINT item_pkey;
ALTER TABLE item ADD PRIMARY KEY (agent_no, seq);
CREATE INDEX item_project ON item (project, no);
CREATE INDEX item_id ON item (project, id, no) WHERE id <> '';
CREATE INDEX item_agent ON item (project, agent_id, no) WHERE agent_id <> '' AND agent_id <> '=';
