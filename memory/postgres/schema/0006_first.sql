-- The oldest of what waits is told by when its first try was due. Servers from before this go on, and look at all that waits for their own answer.
CREATE INDEX delivery_first ON delivery (first_ms) WHERE state = 0;
DROP INDEX delivery_pending;
