-- What the worker of webhooks needs to be just, and replays to be repeatable.

-- When a delivery's first try was due, where that is not when it was made: a replay at a pace. 0 is created_ms.
ALTER TABLE delivery ADD COLUMN first_ms INTEGER NOT NULL DEFAULT 0;
-- 1 for a test that nobody has claimed yet: it goes before what waits for its endpoint.
ALTER TABLE delivery ADD COLUMN urgent INTEGER NOT NULL DEFAULT 0;
CREATE INDEX delivery_urgent ON delivery (id) WHERE state = 0 AND urgent = 1;

-- Replays that a caller has named, and those that are being made. upto is the newest delivery that there was when it began: those that it makes come after.
CREATE TABLE replay (
  id          TEXT PRIMARY KEY,
  project     TEXT NOT NULL,
  request     TEXT NOT NULL,    -- JSON of what was asked for
  now_ms      INTEGER NOT NULL,
  upto        INTEGER NOT NULL,
  made        INTEGER NOT NULL, -- deliveries so far
  delivery_id INTEGER NOT NULL, -- of a replay of one delivery, what it made
  more        INTEGER NOT NULL,
  to_ms       INTEGER NOT NULL,
  done        INTEGER NOT NULL
) WITHOUT ROWID;
