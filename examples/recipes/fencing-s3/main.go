// Command fencing-s3 ships order 42 under a lock, and has the object store refuse what a
// holder writes that has lost the lock and does not know it yet.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/redis" // or the backend that DLOCK_URL names
)

// An order is what an object holds. The token is part of it, so that the ETag, which many
// stores make from the content alone, is another one for each holder.
type order struct {
	State string `json:"state"`
	Fence uint64 `json:"fence"` // the greatest token that has written this object
}

var errStale = errors.New("a later holder of the lock has written")

func main() {
	ctx := context.Background()
	locks, err := dlock.Open(ctx, os.Getenv("DLOCK_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	settings, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		log.Fatal(err)
	}
	store := s3.NewFromConfig(settings)
	err = dlock.Do(ctx, locks.Mutex("orders/42"), func(ctx context.Context, lease *dlock.Lease) error {
		return save(ctx, store, os.Getenv("BUCKET"), "orders/42.json", order{"shipped", lease.Token()})
	})
	if err != nil {
		log.Fatal(err)
	}
}

// save writes an order, or fails with errStale. It looks at what is there, and writes on
// the condition that it is still there; if it is not, save looks again.
func save(ctx context.Context, store *s3.Client, bucket, key string, o order) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	for {
		put := &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(body)}
		seen, etag, err := load(ctx, store, bucket, key)
		switch {
		case err != nil:
			return err
		case etag == nil:
			put.IfNoneMatch = aws.String("*") // only if there is still no object
		case seen.Fence > o.Fence:
			return errStale
		default:
			put.IfMatch = etag
		}
		if _, err = store.PutObject(ctx, put); !isConflict(err) {
			return err
		}
	}
}

// load returns an object and its ETag, which is nil if there is no object.
func load(ctx context.Context, store *s3.Client, bucket, key string) (o order, etag *string, err error) {
	object, err := store.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if missing := (*types.NoSuchKey)(nil); errors.As(err, &missing) {
		return o, nil, nil
	}
	if err != nil {
		return o, nil, err
	}
	defer object.Body.Close()
	err = json.NewDecoder(object.Body).Decode(&o)
	return o, object.ETag, err
}

// isConflict reports whether the condition of a write did not hold, or another write was
// under way.
func isConflict(err error) bool {
	var refused smithy.APIError
	return errors.As(err, &refused) &&
		(refused.ErrorCode() == "PreconditionFailed" || refused.ErrorCode() == "ConditionalRequestConflict")
}
