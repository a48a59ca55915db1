-- Bodies of messages are packed; see package codec. Those of before stay text.

-- The length of the body, which is packed too. Null in rows of before.
ALTER TABLE event ADD COLUMN size INTEGER;
