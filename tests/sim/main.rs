#![cfg(test)]
mod simulation;
