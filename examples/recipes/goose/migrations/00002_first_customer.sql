-- +goose Up
INSERT INTO customers VALUES (1, 'Ada');

-- +goose Down
DELETE FROM customers WHERE id = 1;
