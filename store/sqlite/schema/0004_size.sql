-- Bodies of messages are packed; see package codec. Those of before stay text.

-- The length of the body, which is packed too. Null in rows of before.
ALTER TABLE event ADD COLUMN size INTEGER;

-- An item's id and agent_id are short where they follow from its place; see memories.Row.Stored.
DROP INDEX item_id;
DROP INDEX item_agent;
CREATE INDEX item_id ON item (project, id) WHERE id <> '';
CREATE INDEX item_agent ON item (project, agent_id) WHERE agent_id <> '' AND agent_id <> '=';
