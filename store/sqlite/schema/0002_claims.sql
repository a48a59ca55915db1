-- A claim is part of its delivery: while it lasts, due_ms is the end of its lease.
ALTER TABLE delivery ADD COLUMN claimed INTEGER NOT NULL DEFAULT 0;

-- Claims under way, which a claim counts for each endpoint.
CREATE INDEX delivery_claimed ON delivery (endpoint_no, due_ms) WHERE state = 0 AND claimed = 1;

-- A delivery whose first attempt is under way is found by delivery_claimed.
DROP INDEX delivery_first;
CREATE INDEX delivery_first ON delivery (endpoint_no, CASE first_ms WHEN 0 THEN created_ms ELSE first_ms END) WHERE state = 0 AND attempt > claimed;
