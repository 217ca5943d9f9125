package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// platforms are those that releases are built for.
var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// platform is what Go calls GOOS and GOARCH.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// programs are the commands in an archive. The worlds need Linux: its mounts, its locks, its
// exchange of two names.
func (p platform) programs() []string {
	if p.os != "linux" {
		return []string{"starter"}
	}
	return []string{"starter", "worker"}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var out string
	var only []string
	c := &cobra.Command{
		Use:          "release",
		Short:        "Build the archives of a release",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			chosen, err := choosePlatforms(only)
			if err != nil {
				return err
			}
			archives, err := buildRelease(cmd.Context(), out, chosen)
			for _, name := range archives {
				fmt.Fprintln(cmd.OutOrStdout(), filepath.Join(out, name))
			}
			return err
		},
	}
	c.Flags().StringVar(&out, "out", "dist", "`folder` for the archives")
	c.Flags().StringArrayVar(&only, "only", nil, "build for this `platform` only, such as linux/amd64; may be repeated")
	return c
}

// choosePlatforms returns those of the names, or all if there are none.
func choosePlatforms(names []string) ([]platform, error) {
	if len(names) == 0 {
		return platforms, nil
	}
	var chosen []platform
	for _, name := range names {
		before := len(chosen)
		var known []string
		for _, p := range platforms {
			if known = append(known, p.String()); p.String() == name {
				chosen = append(chosen, p)
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf("--only %s: there is no such platform; there are %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}
