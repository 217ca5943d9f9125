package devserver

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/client"
)

// SearchAttribute is a typed field of a workflow that lists can be filtered by.
type SearchAttribute struct {
	Name string
	Type enums.IndexedValueType
}

// SearchAttributes are the attributes that Unwind's workflows set. A server that does not know one
// fails the workflow task that sets it.
var SearchAttributes = []SearchAttribute{
	{"UnwindStatus", enums.INDEXED_VALUE_TYPE_KEYWORD},
	{"UnwindAgent", enums.INDEXED_VALUE_TYPE_KEYWORD},
	{"UnwindGate", enums.INDEXED_VALUE_TYPE_KEYWORD},
	{"UnwindParked", enums.INDEXED_VALUE_TYPE_KEYWORD},
	{"UnwindFailing", enums.INDEXED_VALUE_TYPE_KEYWORD},
	{"UnwindPending", enums.INDEXED_VALUE_TYPE_INT},
	{"UnwindTask", enums.INDEXED_VALUE_TYPE_KEYWORD},
}

// MissingSearchAttributes names the attributes that the namespace lacks, and the command that
// registers them; both are empty if nothing is missing. An attribute that has another type is an
// error: the owner of the server has to rename or remove it.
func MissingSearchAttributes(ctx context.Context, c client.Client, namespace string) (names []string, command string,
	err error) {
	missing, err := missingAttributes(ctx, c, namespace)
	if err != nil || len(missing) == 0 {
		return nil, "", err
	}
	var cmd strings.Builder
	fmt.Fprintf(&cmd, "temporal operator search-attribute create --namespace %s", namespace)
	for _, a := range missing {
		names = append(names, a.Name)
		fmt.Fprintf(&cmd, " --name %s --type %s", a.Name, a.Type)
	}
	return names, cmd.String(), nil
}

// EnsureSearchAttributes registers missing attributes and waits until the server knows them. It is
// for servers of our own: on a shared server that is an operator's decision.
func EnsureSearchAttributes(ctx context.Context, c client.Client, namespace string) error {
	missing, err := missingAttributes(ctx, c, namespace)
	if err != nil || len(missing) == 0 {
		return err
	}
	req := &operatorservice.AddSearchAttributesRequest{Namespace: namespace,
		SearchAttributes: map[string]enums.IndexedValueType{}}
	for _, a := range missing {
		req.SearchAttributes[a.Name] = a.Type
	}
	if _, err := c.OperatorService().AddSearchAttributes(ctx, req); err != nil {
		return fmt.Errorf("register search attributes in namespace %s: %w", namespace, err)
	}
	for len(missing) > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("search attributes registered in namespace %s, but not known there yet: %w", namespace,
				context.Cause(ctx))
		case <-time.After(pollEvery):
		}
		if missing, err = missingAttributes(ctx, c, namespace); err != nil {
			return err
		}
	}
	return nil
}

func missingAttributes(ctx context.Context, c client.Client, namespace string) ([]SearchAttribute, error) {
	known, err := c.OperatorService().ListSearchAttributes(ctx,
		&operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return nil, fmt.Errorf("list the search attributes of namespace %s: %w", namespace, err)
	}
	var missing []SearchAttribute
	for _, a := range SearchAttributes {
		kind, ok := known.CustomAttributes[a.Name]
		switch {
		case !ok:
			missing = append(missing, a)
		case kind != a.Type:
			return nil, fmt.Errorf(
				"search attribute %s of namespace %s is of type %s, but Unwind needs %s: remove it there first (temporal "+
					"operator search-attribute remove --namespace %s --name %s)",
				a.Name, namespace, kind, a.Type, namespace, a.Name)
		}
	}
	return missing, nil
}
