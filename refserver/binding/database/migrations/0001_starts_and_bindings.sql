-- Starts of processes. They expire, and go some time after that or after the end that was seen. Times are Unix milliseconds.
CREATE TABLE keepwell_starts (
    sandbox  TEXT   NOT NULL,
    instance TEXT   NOT NULL,
    id       TEXT   NOT NULL,
    at       BIGINT NOT NULL,
    expires  BIGINT NOT NULL,
    ended    BIGINT,
    PRIMARY KEY (sandbox, instance, id)
);

-- What public ids mean. These last until the incarnation of the sandbox is forgotten.
CREATE TABLE keepwell_bindings (
    sandbox  TEXT NOT NULL,
    instance TEXT NOT NULL,
    id       TEXT NOT NULL,
    bound    TEXT NOT NULL CHECK (bound <> ''),
    PRIMARY KEY (sandbox, instance, id)
);

-- From a runner's ids to the public ones, without a look at the table.
CREATE INDEX keepwell_bindings_bound ON keepwell_bindings (sandbox, instance, bound, id);

-- Those that say nothing, for retention to find.
CREATE INDEX keepwell_bindings_self ON keepwell_bindings (sandbox, instance, id) WHERE bound = id;
