package devserver_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"

	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/workflows"
)

func TestSearchAttributesAreThoseOfTheWorkflows(t *testing.T) {
	set := map[string]enums.IndexedValueType{
		workflows.AttributeStatus.GetName():  workflows.AttributeStatus.GetValueType(),
		workflows.AttributeAgent.GetName():   workflows.AttributeAgent.GetValueType(),
		workflows.AttributeGate.GetName():    workflows.AttributeGate.GetValueType(),
		workflows.AttributeFailing.GetName(): workflows.AttributeFailing.GetValueType(),
		workflows.AttributeParked.GetName():  workflows.AttributeParked.GetValueType(),
		workflows.AttributeTask.GetName():    workflows.AttributeTask.GetValueType(),
		workflows.AttributePending.GetName(): workflows.AttributePending.GetValueType(),
	}
	registered := map[string]enums.IndexedValueType{}
	for _, a := range devserver.SearchAttributes {
		registered[a.Name] = a.Type
	}
	require.Equal(t, set, registered)
}

func TestComposeRegistersTheSame(t *testing.T) {
	raw, err := os.ReadFile("../compose/scripts/namespace.sh")
	require.NoError(t, err)
	script := string(raw)
	for _, a := range devserver.SearchAttributes {
		require.Contains(t, script, fmt.Sprintf("--name %s --type %s", a.Name, a.Type))
	}
	require.Equal(t, len(devserver.SearchAttributes), strings.Count(script, "--type"))
}
