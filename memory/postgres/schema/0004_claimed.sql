-- Claims that are under way, which a claim counts for each endpoint: without this it would look at everything that waits there for a later try.
CREATE INDEX delivery_claimed ON delivery (endpoint_no, due_ms) WHERE state = 0 AND claimed;
