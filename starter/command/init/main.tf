# Needs no provider: what it makes exists in Terraform's state only.
variable "greeting" {
  type = string
}

resource "terraform_data" "greeting" {
  input = var.greeting
}

output "greeting" {
  value = terraform_data.greeting.output
}
