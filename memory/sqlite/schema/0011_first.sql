-- When deliveries whose first try is over were first due, for the age of what waits longest: those of a replay at a pace were made before. What has not been tried
-- is due when it was first due, and written to this index not at all.
CREATE INDEX delivery_first ON delivery (endpoint_no, CASE first_ms WHEN 0 THEN created_ms ELSE first_ms END) WHERE state = 0 AND attempt > 0;
