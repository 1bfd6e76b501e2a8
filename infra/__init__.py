"""Lamplighter's CDK app, and `JobScheduler`, the construct that other CDK apps can use."""

from infra.node import use_the_node_of_the_wheel

# Before anything here imports aws_cdk: that import starts Node.
use_the_node_of_the_wheel()
