// Command testprovider is an OpenID Connect provider for tests, made of the reference server of a
// certified library. It prints its issuer once it listens, and runs until its input ends.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "testprovider:", err)
		os.Exit(1)
	}
}

// directory is the users by id, with the groups of each.
type directory struct {
	Redirect string                   `json:"redirect"`
	Users    map[string]*storage.User `json:"users"`
	Groups   map[string][]string      `json:"groups"`
}

func (d directory) GetUserByID(id string) *storage.User { return d.Users[id] }

func (d directory) GetUserByUsername(name string) *storage.User {
	for _, u := range d.Users {
		if u.Username == name {
			return u
		}
	}
	return nil
}

func (directory) ExampleClientID() string { return storage.ServiceUserID }

// grouped says to which groups a user belongs.
type grouped struct {
	*storage.Storage

	groups map[string][]string
}

// SetUserinfoFromToken tells the groups beside the standard claims.
func (g grouped) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, token, subject, origin string) error {
	if err := g.Storage.SetUserinfoFromToken(ctx, info, token, subject, origin); err != nil {
		return err
	}
	info.AppendClaims("groups", g.groups[subject])
	return nil
}

func run(config string) error {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	var d directory
	if err := json.Unmarshal([]byte(config), &d); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	issuer := fmt.Sprintf("http://127.0.0.1:%d", l.Addr().(*net.TCPAddr).Port)
	storage.RegisterClients(storage.WebClient("unwind", "secret", d.Redirect))
	var kept op.Storage = grouped{storage.NewStorage(d), d.Groups}
	handler := exampleop.SetupServer(issuer, kept.(exampleop.Storage), nil, false)
	fmt.Println(issuer)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(l, handler) //nolint:gosec // a test's
}
