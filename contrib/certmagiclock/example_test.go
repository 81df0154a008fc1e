package certmagiclock_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/caddyserver/certmagic"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/backend/memory"
	"github.com/dlock-go/dlock/contrib/certmagiclock"
)

func ExampleNew() {
	ctx := context.Background()
	client, err := dlock.Open(ctx, "memory://", nil) // or redis://host:6379, ...
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	dir, err := os.MkdirTemp("", "certificates")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	shared := &certmagic.FileStorage{Path: dir} // or any other storage
	certmagic.Default.Storage = certmagiclock.New(shared, client)
	// From here on as ever: certmagic.HTTPS([]string{"example.com"}, mux)

	fmt.Println(certmagic.CleanStorage(ctx, certmagic.Default.Storage, certmagic.CleanStorageOptions{ExpiredCerts: true}))
	// Output: <nil>
}
