// Package httpserve serves HTTP until it is to end.
package httpserve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// calmEnd is how long requests that are under way may take once the server is to end.
const calmEnd = 5 * time.Second

// Serve answers requests until ctx ends.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stopped := context.AfterFunc(ctx, func() {
		calm, cancel := context.WithTimeout(context.WithoutCancel(ctx), calmEnd)
		defer cancel()
		if server.Shutdown(calm) != nil {
			_ = server.Close()
		}
	})
	defer stopped()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
