-- +goose Up
CREATE TABLE orders (id bigint PRIMARY KEY, state text NOT NULL);

-- +goose Down
DROP TABLE orders;
