package shop

import (
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
)

// app is the application. What is in its repository it reads once, as programs do: another release
// needs a restart.
type app struct {
	release string
	query   string // of the library pricelist
	page    *template.Template
	uploads string
	dsn     string
}

// plan is what the shop sells.
type plan struct {
	Name  string
	Cents int
}

func loadApp(folder string) (*app, error) {
	code := filepath.Join(folder, codeFolder)
	var about struct{ Release string }
	raw, err := os.ReadFile(filepath.Join(code, "app.json"))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &about); err != nil {
		return nil, fmt.Errorf("app.json: %w", err)
	}
	query, err := os.ReadFile(filepath.Join(code, "lib", "pricelist", "plans.sql"))
	if err != nil {
		return nil, err
	}
	page, err := template.ParseFiles(filepath.Join(code, "page.html"))
	if err != nil {
		return nil, err
	}
	dsn, err := os.ReadFile(filepath.Join(folder, dsnFile))
	return &app{release: about.Release, query: string(query), page: page, uploads: filepath.Join(folder, uploadsFolder),
		dsn: string(dsn)}, err
}

func (a *app) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", a.servePage)
	mux.HandleFunc("GET /health", a.serveHealth)
	mux.Handle("GET /uploads/", http.StripPrefix("/uploads", http.FileServer(http.Dir(a.uploads))))
	return mux
}

func (a *app) servePage(w http.ResponseWriter, r *http.Request) {
	plans, err := a.plans(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	uploads, err := os.ReadDir(a.uploads)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var names []string
	for _, u := range uploads {
		names = append(names, u.Name())
	}
	_ = a.page.Execute(w, map[string]any{"Release": a.release, "Plans": plans, "Uploads": names}) // the client may be gone
}

// serveHealth does what a page needs: a shop whose code does not fit the schema is not healthy.
func (a *app) serveHealth(w http.ResponseWriter, r *http.Request) {
	plans, err := a.plans(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var sold []string
	for _, p := range plans {
		sold = append(sold, fmt.Sprintf("%s for %d", p.Name, p.Cents))
	}
	fmt.Fprintf(w, "release %s sells %s\n", a.release, strings.Join(sold, ", "))
}

func (a *app) plans(ctx context.Context) ([]plan, error) {
	conn, err := pgx.Connect(ctx, a.dsn)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, a.query)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[plan])
}
